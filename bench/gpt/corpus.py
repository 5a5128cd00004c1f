"""Makes the corpus of the GPT experiment: C source of the Linux kernel as byte pairs of its own training.

    apt-get download linux-source-6.1 && python3 bench/gpt/corpus.py linux-source-6.1_*.deb corpus/

Needs `tokenizers` and dpkg-deb. Whole directories are held out, for validation and for testing. Writes corpus/tokens.xz
(uint16: validation, test, training, one after the other), corpus/tokenizer.json and corpus/corpus.json, which says what it is.
"""

import argparse
import array
import hashlib
import json
import lzma
import os
import subprocess
import sys
import tarfile

VOCABULARY = 8192
END_OF_FILE = "<|file|>"
LEFT_OUT = "drivers/gpu/drm/amd/include/"  # tables of registers, which a machine wrote
HELD_OUT_TOKENS = {"validation": 400_000, "test": 1_200_000}
HELD_OUT_AT_MOST = 400_000  # bytes of one directory, so that each part has several
TRAINING_TOKENS = 100_000_000
TOKENIZER_BYTES = 60_000_000


def read(deb):
    """The .c files: path and text, by path."""
    files = {}
    process = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", deb], stdout=subprocess.PIPE)
    package = tarfile.open(fileobj=process.stdout, mode="r|")
    for outer in package:
        if not outer.name.endswith(".tar.xz"):
            continue
        source = tarfile.open(fileobj=package.extractfile(outer), mode="r|xz")
        for member in source:
            path = member.name.partition("/")[2]
            if member.isfile() and path.endswith(".c") and not path.startswith(LEFT_OUT):
                files[path] = source.extractfile(member).read().decode("utf-8", "replace")
    if process.wait():
        raise SystemExit(f"dpkg-deb could not read {deb}")
    return dict(sorted(files.items()))


def directory(path, depth):
    return "/".join(path.split("/")[:-1][:depth])


def shuffled(names):
    """In an order that depends on the names alone."""
    return sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())


def by_directory(files, depth):
    found = {}
    for path in files:
        found.setdefault(directory(path, depth), []).append(path)
    return found


def train_tokenizer(texts):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=[END_OF_FILE], initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def encode(tokenizer, texts):
    tokens = array.array("H")
    for at in range(0, len(texts), 256):
        for one in tokenizer.encode_batch_fast(texts[at : at + 256]):
            tokens.extend([*one.ids, 0])
    return tokens


def choose(files, tokens, bytes_per_token, depth, at_most=float("inf")):
    """Whole directories with about so many tokens, and their files by path: that order compresses best."""
    groups, chosen, size = by_directory(files, depth), {}, 0
    for name in shuffled(groups):
        found = sum(len(files[path]) for path in groups[name])
        if size < tokens * bytes_per_token and found <= at_most:
            chosen[name] = sorted(groups[name])
            size += found
    return sorted(chosen), sorted(path for paths in chosen.values() for path in paths)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("deb")
    parser.add_argument("folder")
    parser.add_argument("--training-tokens", type=int, default=TRAINING_TOKENS)
    options = parser.parse_args()
    os.makedirs(options.folder, exist_ok=True)
    files = read(options.deb)
    whole = {"files": len(files), "characters": sum(len(text) for text in files.values())}
    print(whole, flush=True)

    parts, held_out = {}, {}
    for part, tokens in HELD_OUT_TOKENS.items():
        held_out[part], paths = choose(files, tokens, 2.5, 2, HELD_OUT_AT_MOST)
        parts[part] = [files.pop(path) for path in paths]
    sample, size = [], 0
    for path in shuffled(files):
        if size < TOKENIZER_BYTES:
            sample.append(files[path])
            size += len(files[path])
    tokenizer = train_tokenizer(sample)
    tokenizer.save(os.path.join(options.folder, "tokenizer.json"))
    print("tokenizer trained", flush=True)
    bytes_per_token = sum(len(text) for text in sample[:1000]) / len(encode(tokenizer, sample[:1000]))
    _, paths = choose(files, options.training_tokens, bytes_per_token, 9)
    parts["training"] = [files[path] for path in paths]

    tokens = array.array("H")
    about = {"package": os.path.basename(options.deb), "whole": whole, "vocabulary": VOCABULARY, "held_out": held_out}
    for part, texts in parts.items():
        found = encode(tokenizer, texts)
        size = sum(len(text.encode()) for text in texts)
        about[part] = {"tokens": len(found), "files": len(texts), "bytes": size, "bytes_per_token": round(size / len(found), 3)}
        print(part, about[part], flush=True)
        tokens.extend(found)
    about["sha256"] = hashlib.sha256(tokens.tobytes()).hexdigest()
    with open(os.path.join(options.folder, "corpus.json"), "w", encoding="utf-8") as file:
        json.dump(about, file, indent=1)
    # lp and pb say that what repeats begins at every second byte.
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9, "lp": 1, "pb": 1, "lc": 3, "dict_size": 1 << 28}]
    with lzma.open(os.path.join(options.folder, "tokens.xz"), "wb", filters=filters) as file:
        file.write(tokens.tobytes())


if __name__ == "__main__":
    sys.exit(main())
