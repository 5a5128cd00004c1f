"""Pages as the program writes them."""

import case


class Program(case.Case):
    pass
