"""The data of a page that sparsewire wrote."""

import json
import re


def data_of(page):
    """`page`: the text of the file."""
    found = re.findall(r'<script type="application/json" id="sparsewire-data">(.*?)</script>', page, re.DOTALL)
    assert len(found) == 1, "the data are there once"
    return json.loads(found[0])
