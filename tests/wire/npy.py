"""Reads and writes vectors in .npy files without NumPy. `kind` is a format letter of struct: f for '<f4', I for '<u4'."""
import ast
import struct

DESCR = {"f": "<f4", "I": "<u4"}


def write(path, kind, numbers):
    header = f"{{'descr': '{DESCR[kind]}', 'fortran_order': False, 'shape': ({len(numbers)},), }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    with open(path, "wb") as out:
        out.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        out.write(struct.pack(f"<{len(numbers)}{kind}", *numbers))


def read(path, kind, bits=False):
    """The numbers or, with `bits`, their bit patterns, which distinguish -0 from 0."""
    with open(path, "rb") as file:
        data = file.read()
    if data[:6] != b"\x93NUMPY":
        raise ValueError(f"{path} is not a .npy file")
    at, size = (10, "<H") if data[6] == 1 else (12, "<I")
    length, = struct.unpack(size, data[8:at])
    header = ast.literal_eval(data[at:at + length].decode("latin-1"))
    if header["descr"] != DESCR[kind] or len(header["shape"]) != 1:
        raise ValueError(f"{path} contains {header}, not a vector of {DESCR[kind]}")
    return list(struct.unpack(f"<{header['shape'][0]}{'I' if bits else kind}", data[at + length:]))
