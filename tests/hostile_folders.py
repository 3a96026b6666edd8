"""Ways to spoil a model folder, most of them with a manifest that matches: what a hostile author would hand out."""

import base64
import hashlib
import io
import json
import os
import pickle
import random
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sentencepiece
import torch
from safetensors.torch import load, save_file

from sentences import SENTENCES

MANIFEST = "MANIFEST.json"
WEIGHTS = "model.safetensors"
Spoil = Callable[[Path], Path | None]
"""Changes a copy of a good folder; returns what is to be given instead of it, if anything."""

SPOILERS: dict[str, Spoil] = {}


def spoiler(function: Spoil) -> Spoil:
    SPOILERS[function.__name__] = function
    return function


def spoiled(name: str, good: Path, folder: Path) -> Path:
    """A copy of the good folder, spoiled; the path to give as a model."""
    shutil.copytree(good, folder)
    return SPOILERS[name](folder) or folder


def seal(folder: Path, **changes: Any) -> None:
    """Write a manifest that matches the files."""
    manifest = json.loads((folder / MANIFEST).read_bytes())
    paths = [path for path in sorted(folder.iterdir()) if path.is_file() and path.name != MANIFEST]
    digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
    manifest["files"] = {path.name: {"bytes": path.stat().st_size, "sha256": digests[path.name]} for path in paths}
    (folder / MANIFEST).write_text(json.dumps(manifest | changes))


def change_config(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    tree = json.loads((folder / "config.json").read_bytes())
    change(tree)
    (folder / "config.json").write_text(json.dumps(tree))
    seal(folder)


def tensors_of(folder: Path) -> dict[str, torch.Tensor]:
    return load((folder / WEIGHTS).read_bytes())  # not mapped: the file will be overwritten


def change_tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = tensors_of(folder)
    change(tensors)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / WEIGHTS)
    seal(folder)


def replace(folder: Path, name: str, content: bytes) -> None:
    (folder / name).write_bytes(content)
    seal(folder)


def change_manifest(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    manifest = json.loads((folder / MANIFEST).read_bytes())
    change(manifest)
    (folder / MANIFEST).write_text(json.dumps(manifest))


# Damage: the manifest is that of the good folder.


@spoiler
def truncated_weights(folder: Path) -> None:
    content = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(content[: len(content) // 2])


@spoiler
def flipped_bit(folder: Path) -> None:
    content = bytearray((folder / WEIGHTS).read_bytes())
    content[-5] ^= 1
    (folder / WEIGHTS).write_bytes(content)


@spoiler
def zeroed_block(folder: Path) -> None:
    content = bytearray((folder / WEIGHTS).read_bytes())
    content[-4096:] = bytes(4096)
    (folder / WEIGHTS).write_bytes(content)


@spoiler
def manifest_missing(folder: Path) -> None:
    (folder / MANIFEST).unlink()


@spoiler
def weights_missing(folder: Path) -> None:
    (folder / WEIGHTS).unlink()


@spoiler
def folder_where_a_file_should_be(folder: Path) -> None:
    (folder / "config.json").unlink()
    (folder / "config.json").mkdir()


@spoiler
def pipe_where_a_file_should_be(folder: Path) -> None:
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")


@spoiler
def weights_of_another_model(folder: Path) -> None:
    tensors = {name: tensor + 1 for name, tensor in tensors_of(folder).items()}
    save_file(tensors, folder / WEIGHTS)


# Manifests.


@spoiler
def manifest_not_json(folder: Path) -> None:
    (folder / MANIFEST).write_bytes(b"\xff\x00{")


@spoiler
def manifest_empty(folder: Path) -> None:
    (folder / MANIFEST).write_bytes(b"")


@spoiler
def manifest_a_list(folder: Path) -> None:
    (folder / MANIFEST).write_text("[1, 2]")


@spoiler
def manifest_nested_deep(folder: Path) -> None:
    (folder / MANIFEST).write_text("[" * 400_000)


@spoiler
def manifest_huge(folder: Path) -> None:
    (folder / MANIFEST).write_text(" " * (2 << 20) + "{}")


@spoiler
def manifest_with_an_infinite_size(folder: Path) -> None:
    text = (folder / MANIFEST).read_text()
    (folder / MANIFEST).write_text(text.replace('"bytes": ', '"bytes": 1e999, "was": ', 1))


@spoiler
def manifest_naming_a_file_outside(folder: Path) -> None:
    change_manifest(folder, lambda tree: tree["files"].update({"../outside": {"bytes": 0, "sha256": ""}}))


@spoiler
def manifest_naming_an_absolute_file(folder: Path) -> None:
    change_manifest(folder, lambda tree: tree["files"].update({"/etc/passwd": {"bytes": 0, "sha256": ""}}))


@spoiler
def manifest_naming_a_very_long_file(folder: Path) -> None:
    change_manifest(folder, lambda tree: tree["files"].update({"x" * 5000: {"bytes": 0, "sha256": ""}}))


@spoiler
def manifest_naming_a_file_with_nul(folder: Path) -> None:
    change_manifest(folder, lambda tree: tree["files"].update({"a\0b\udc80": {"bytes": 0, "sha256": ""}}))


@spoiler
def manifest_naming_nothing(folder: Path) -> None:
    change_manifest(folder, lambda tree: tree.update(files={}))


@spoiler
def manifest_without_the_weights(folder: Path) -> None:
    change_manifest(folder, lambda tree: tree["files"].pop(WEIGHTS))


@spoiler
def newer_format(folder: Path) -> None:
    seal(folder, format=2)


@spoiler
def format_that_colours_the_terminal(folder: Path) -> None:
    seal(folder, format="\x1b[31m\r\nheadway: all is well" + "!" * 100_000)


# Configurations.


@spoiler
def config_missing(folder: Path) -> None:
    (folder / "config.json").unlink()
    seal(folder)


@spoiler
def config_empty(folder: Path) -> None:
    replace(folder, "config.json", b"")


@spoiler
def config_a_list(folder: Path) -> None:
    replace(folder, "config.json", b"[]")


@spoiler
def config_nested_deep(folder: Path) -> None:
    replace(folder, "config.json", b'{"a":' * 150_000)


@spoiler
def config_huge(folder: Path) -> None:
    replace(folder, "config.json", b'{"scores": {' + b'"x": 1,' * 400_000 + b'"x": 1}}')


@spoiler
def config_with_a_huge_integer(folder: Path) -> None:
    replace(folder, "config.json", b'{"source_vocabulary": ' + b"9" * 100_000 + b"}")


@spoiler
def config_with_half_a_surrogate(folder: Path) -> None:
    change_config(folder, lambda tree: tree.update(headway="\ud800"))


@spoiler
def config_with_code(folder: Path) -> None:
    (folder / "modeling.py").write_text("import os\nos.system('touch pwned')\n")
    change_config(folder, lambda tree: tree.update(auto_map={"AutoModel": "modeling.Model"}))


@spoiler
def config_with_a_key_that_colours_the_terminal(folder: Path) -> None:
    change_config(folder, lambda tree: tree.update({"\x1b[2J\n" + "k" * 100_000: 1}))


@spoiler
def wrong_architecture(folder: Path) -> None:
    change_config(folder, lambda tree: tree["model"].update(architecture="os.system"))


@spoiler
def wider_model_than_its_weights(folder: Path) -> None:
    change_config(folder, lambda tree: tree["model"].update(dim=32))


@spoiler
def other_layers_of_the_same_size(folder: Path) -> None:
    change_config(folder, lambda tree: tree["model"].update(feedforward="gelu", norm="pre", positions="relative"))


@spoiler
def million_million_parameters(folder: Path) -> None:
    sizes = {"dim": 16384, "heads": 2, "hidden": 65536, "encoder_layers": 256, "decoder_layers": 256, "longest": 32}
    change_config(folder, lambda tree: tree["model"].update(sizes))


@spoiler
def million_million_tokens(folder: Path) -> None:
    change_config(folder, lambda tree: tree.update(source_vocabulary=10**12, target_vocabulary=10**12))


@spoiler
def more_tokens_than_an_integer_holds(folder: Path) -> None:
    change_config(folder, lambda tree: tree.update(source_vocabulary=10**30, target_vocabulary=10**30))


@spoiler
def no_tokens(folder: Path) -> None:
    change_config(folder, lambda tree: tree.update(source_vocabulary=-1, target_vocabulary=-1))


@spoiler
def position_table_of_terabytes(folder: Path) -> None:
    change_config(folder, lambda tree: tree["model"].update(longest=1 << 36))


@spoiler
def heads_that_do_not_divide(folder: Path) -> None:
    change_config(folder, lambda tree: tree["model"].update(heads=3))


@spoiler
def beam_of_a_thousand_million(folder: Path) -> None:
    change_config(folder, lambda tree: tree["decoding"].update(beam=10**9))


# Weights.


@spoiler
def tensor_missing(folder: Path) -> None:
    change_tensors(folder, lambda tensors: tensors.pop("output.bias"))


@spoiler
def tensor_renamed(folder: Path) -> None:
    change_tensors(folder, lambda tensors: tensors.update({"\x1b[2Joutput.bias": tensors.pop("output.bias")}))


@spoiler
def tensor_too_many(folder: Path) -> None:
    change_tensors(folder, lambda tensors: tensors.update(more=torch.zeros(3)))


@spoiler
def tensor_transposed(folder: Path) -> None:
    name = "target_embedding.weight"
    change_tensors(folder, lambda tensors: tensors.update({name: tensors[name].t()}))


@spoiler
def tensor_of_whole_numbers(folder: Path) -> None:
    change_tensors(folder, lambda tensors: tensors.update({"output.bias": tensors["output.bias"].int()}))


@spoiler
def tensor_with_nan(folder: Path) -> None:
    change_tensors(folder, lambda tensors: tensors["output.bias"].__setitem__(1, float("nan")))


@spoiler
def tensor_with_infinity(folder: Path) -> None:
    change_tensors(folder, lambda tensors: tensors["output.bias"].__setitem__(1, float("-inf")))


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch pwned",)


@spoiler
def pickle_as_weights(folder: Path) -> None:
    size = (folder / WEIGHTS).stat().st_size
    replace(folder, WEIGHTS, pickle.dumps(Bomb()).ljust(size, b"\0"))


@spoiler
def torch_archive_as_weights(folder: Path) -> None:
    tensors = tensors_of(folder)
    torch.save({**tensors, "bomb": Bomb()}, folder / WEIGHTS)
    seal(folder)


def replace_header(folder: Path, size: int, header: bytes) -> None:
    content = (folder / WEIGHTS).read_bytes()
    replace(folder, WEIGHTS, (size.to_bytes(8, "little") + header).ljust(len(content), b" "))


@spoiler
def header_of_exabytes(folder: Path) -> None:
    replace_header(folder, 1 << 62, b"{}")


@spoiler
def header_beyond_the_file(folder: Path) -> None:
    replace_header(folder, 90_000_000, b"{}")


@spoiler
def header_nested_deep(folder: Path) -> None:
    header = b'{"a":' * 3000
    replace_header(folder, len(header), header)


@spoiler
def header_of_sixteen_megabytes(folder: Path) -> None:
    header = b"{" + b",".join(b'"%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}' % n for n in range(250_000))
    header += b"}"
    replace(folder, WEIGHTS, len(header).to_bytes(8, "little") + header + (folder / WEIGHTS).read_bytes())


@spoiler
def tensor_larger_than_the_file(folder: Path) -> None:
    header = b'{"output.bias":{"dtype":"F32","shape":[1000000000000],"data_offsets":[0,4000000000000]}}'
    replace_header(folder, len(header), header)


@spoiler
def tensor_of_an_unknown_kind(folder: Path) -> None:
    header = b'{"output.bias":{"dtype":"Z99","shape":[1],"data_offsets":[0,4]}}'
    replace_header(folder, len(header), header)


# Tokenizers.


@spoiler
def tokenizer_two_folders_up(folder: Path) -> None:
    change_config(folder, lambda tree: tree.update(tokenizer="../../x"))


@spoiler
def tokenizer_at_an_absolute_path(folder: Path) -> None:
    change_config(folder, lambda tree: tree.update(tokenizer="/etc/passwd"))


@spoiler
def tokenizer_missing(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    seal(folder)


@spoiler
def tokenizers_of_both_sides_missing(folder: Path) -> None:
    change_config(folder, lambda tree: tree.update(joint=False))


@spoiler
def tokenizer_not_json(folder: Path) -> None:
    replace(folder, "tokenizer.json", b"\x80\x04not json\n\x1b[31m")


@spoiler
def tokenizer_nested_deep(folder: Path) -> None:
    replace(folder, "tokenizer.json", b'{"version":' * 100_000)


@spoiler
def tokenizer_of_gigabytes(folder: Path) -> None:
    with (folder / "tokenizer.json").open("r+b") as file:
        file.truncate(80 << 20)
    seal(folder)


@spoiler
def tokenizer_with_fewer_tokens(folder: Path) -> None:
    tree = json.loads((folder / "tokenizer.json").read_bytes())
    dropped = max(tree["model"]["vocab"], key=tree["model"]["vocab"].get)
    del tree["model"]["vocab"][dropped]
    tree["model"]["merges"] = [pair for pair in tree["model"]["merges"] if "".join(pair) != dropped]
    replace(folder, "tokenizer.json", json.dumps(tree).encode())


@spoiler
def tokenizer_with_ids_beyond_count(folder: Path) -> None:
    tree = json.loads((folder / "tokenizer.json").read_bytes())
    tree["model"]["vocab"]["!"] = 4_000_000_000
    replace(folder, "tokenizer.json", json.dumps(tree).encode())


@spoiler
def tokenizer_that_panics(folder: Path) -> None:
    tree = json.loads((folder / "tokenizer.json").read_bytes())
    tree["model"]["continuing_subword_prefix"] = "x" * 10
    replace(folder, "tokenizer.json", json.dumps(tree).encode())


def change_tokenizer(folder: Path, **changes: Any) -> None:
    tree = json.loads((folder / "tokenizer.json").read_bytes())
    replace(folder, "tokenizer.json", json.dumps(tree | changes).encode())


def in_turn(name: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", name: list(parts)}


FOR_EVER = "(?:a|a|.)*b"


@spoiler
def tokenizer_that_splits_for_ever(folder: Path) -> None:
    split = {"type": "Split", "pattern": {"Regex": FOR_EVER}, "behavior": "Isolated", "invert": False}
    after = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    change_tokenizer(folder, pre_tokenizer=in_turn("pretokenizers", split, after))


@spoiler
def tokenizer_that_normalizes_for_ever(folder: Path) -> None:
    change_tokenizer(folder, normalizer={"type": "Replace", "pattern": {"Regex": FOR_EVER}, "content": " "})


@spoiler
def tokenizer_that_decodes_for_ever(folder: Path) -> None:
    change_tokenizer(folder, decoder={"type": "Replace", "pattern": {"Regex": FOR_EVER}, "content": " "})


@spoiler
def tokenizer_that_tries_blanks_in_vain(folder: Path) -> None:
    change_tokenizer(folder, normalizer={"type": "Replace", "pattern": {"Regex": r"\s+$"}, "content": " "})


@spoiler
def tokenizer_that_multiplies_a_letter(folder: Path) -> None:
    tenfold = {"type": "Replace", "pattern": {"String": "z"}, "content": "z" * 10}
    change_tokenizer(folder, normalizer=in_turn("normalizers", *[tenfold] * 9))


@spoiler
def tokenizer_that_doubles_bytes(folder: Path) -> None:
    change_tokenizer(folder, normalizer=in_turn("normalizers", *[{"type": "ByteLevel"}] * 10))


@spoiler
def tokenizer_that_puts_much_before_a_text(folder: Path) -> None:
    change_tokenizer(folder, normalizer=in_turn("normalizers", *[{"type": "Prepend", "prepend": "z" * 300}] * 3))


@spoiler
def tokenizer_of_very_many_parts(folder: Path) -> None:
    change_tokenizer(folder, normalizer=in_turn("normalizers", *[{"type": "StripAccents"}] * 1000))


@spoiler
def tokenizer_with_a_part_that_nobody_knows(folder: Path) -> None:
    change_tokenizer(folder, pre_tokenizer={"type": "FixedLength", "length": 0})


@spoiler
def tokenizer_that_replaces_nothing(folder: Path) -> None:
    change_tokenizer(folder, normalizer={"type": "Replace", "pattern": {"String": ""}, "content": "z"})


@spoiler
def tokenizer_that_puts_nothing_before_a_text(folder: Path) -> None:
    change_tokenizer(folder, normalizer={"type": "Prepend", "prepend": ""})


@spoiler
def tokenizer_that_strips_more_than_there_is(folder: Path) -> None:
    change_tokenizer(folder, decoder={"type": "Strip", "content": " ", "start": 0, "stop": 10**6})


@spoiler
def tokenizer_with_a_table_that_is_none(folder: Path) -> None:
    change_tokenizer(folder, normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAAAAAA"})


@spoiler
def tokenizer_with_a_table_without_end(folder: Path) -> None:
    unit = (1 << 10 | 97).to_bytes(4, "little")  # wherever it is, it leads on
    table = (4 * 512).to_bytes(4, "little") + unit * 512
    encoded = base64.b64encode(table).decode()
    change_tokenizer(folder, normalizer={"type": "Precompiled", "precompiled_charsmap": encoded})


@spoiler
def tokenizer_whose_template_repeats_the_text(folder: Path) -> None:
    pieces = [{"Sequence": {"id": "A", "type_id": 0}}] * 2
    change_tokenizer(
        folder, post_processor={"type": "TemplateProcessing", "single": pieces, "pair": [], "special_tokens": {}}
    )


@spoiler
def tokenizer_with_an_added_token_that_is_nothing(folder: Path) -> None:
    tree = json.loads((folder / "tokenizer.json").read_bytes())
    token = tree["added_tokens"][0] | {"id": 300, "content": "  ", "normalized": True, "special": False}
    strip = {"type": "Strip", "strip_left": True, "strip_right": True}
    change_tokenizer(folder, added_tokens=[*tree["added_tokens"], token], normalizer=strip)


@spoiler
def tokenizer_with_a_token_of_megabytes(folder: Path) -> None:
    tree = json.loads((folder / "tokenizer.json").read_bytes())
    last = max(tree["model"]["vocab"], key=tree["model"]["vocab"].get)
    vocabulary = {"z" * (2 << 20) if token == last else token: place for token, place in tree["model"]["vocab"].items()}
    change_tokenizer(folder, model=tree["model"] | {"vocab": vocabulary, "merges": []})


def change_model(folder: Path, **model: Any) -> None:
    """Give the tokenizer another model with the same tokens."""
    vocabulary = json.loads((folder / "tokenizer.json").read_bytes())["model"]["vocab"]
    change_tokenizer(folder, model={"vocab": vocabulary} | model)


@spoiler
def tokenizer_without_an_unknown_piece(folder: Path) -> None:
    tokens = json.loads((folder / "tokenizer.json").read_bytes())["model"]["vocab"]
    change_model(folder, type="Unigram", unk_id=None, vocab=[[token, -1.0] for token in sorted(tokens, key=tokens.get)])


@spoiler
def tokenizer_without_an_unknown_word(folder: Path) -> None:
    change_model(folder, type="WordLevel", unk_token="none")


@spoiler
def tokenizer_that_divides_very_long_words(folder: Path) -> None:
    settings = {"continuing_subword_prefix": "##", "max_input_chars_per_word": 10**9}
    change_model(folder, type="WordPiece", unk_token="<unk>", **settings)


@spoiler
def tokenizer_of_an_unknown_model(folder: Path) -> None:
    change_model(folder, type="Markov")


@spoiler
def tokenizer_that_is_a_list(folder: Path) -> None:
    replace(folder, "tokenizer.json", b"[]")


def give_pieces(folder: Path, content: bytes) -> None:
    (folder / "tokenizer.model").write_bytes(content)
    change_config(folder, lambda tree: tree.update(tokenizer="tokenizer.model"))


@spoiler
def sentencepiece_of_noise(folder: Path) -> None:
    give_pieces(folder, random.Random(1).randbytes(100_000))


@spoiler
def sentencepiece_of_gigabytes(folder: Path) -> None:
    give_pieces(folder, b"")
    os.truncate(folder / "tokenizer.model", 80 << 20)
    seal(folder)


@spoiler
def sentencepiece_with_a_piece_of_megabytes(folder: Path) -> None:
    piece = b"\x0a\x80\x80\x40" + b"z" * (1 << 20)
    give_pieces(folder, b"\x0a\x84\x80\x40" + piece)


@spoiler
def sentencepiece_that_multiplies_a_letter(folder: Path) -> None:
    pieces = io.BytesIO()
    (folder / "rules").write_text("7A\t" + " ".join(["79"] * 2000) + "\n")
    settings = {"normalization_rule_tsv": str(folder / "rules"), "minloglevel": 9, "vocab_size": 30}
    train = sentencepiece.SentencePieceTrainer.train
    train(sentence_iterator=iter(SENTENCES), model_writer=pieces, hard_vocab_limit=False, **settings)
    (folder / "rules").unlink()
    give_pieces(folder, pieces.getvalue())


@spoiler
def sentencepiece_that_is_none(folder: Path) -> None:
    give_pieces(folder, pickle.dumps(Bomb()))


# Links, and things that are no folder.


def link_out(folder: Path, name: str) -> None:
    elsewhere = folder.with_name(f"{folder.name}-elsewhere-{name}")
    (folder / name).rename(elsewhere)
    (folder / name).symlink_to(elsewhere)


@spoiler
def link_to_weights_elsewhere(folder: Path) -> None:
    link_out(folder, WEIGHTS)


@spoiler
def link_to_a_config_elsewhere(folder: Path) -> None:
    link_out(folder, "config.json")


@spoiler
def link_to_a_manifest_elsewhere(folder: Path) -> None:
    link_out(folder, MANIFEST)


@spoiler
def zip_given_as_model(folder: Path) -> Path:
    path = folder.with_suffix(".zip")
    with zipfile.ZipFile(path, "w") as archive:
        for each in folder.iterdir():
            archive.write(each, each.name)
    return path


@spoiler
def file_inside_the_folder_given(folder: Path) -> Path:
    return folder / WEIGHTS


@spoiler
def nothing_there(folder: Path) -> Path:
    return folder / "absent"


@spoiler
def empty_folder(folder: Path) -> Path:
    (folder / "empty").mkdir()
    return folder / "empty"


@spoiler
def run_without_a_model(folder: Path) -> Path:
    (folder / "run" / "checkpoints").mkdir(parents=True)
    return folder / "run"


@spoiler
def best_model_empty(folder: Path) -> Path:
    (folder / "run" / "best").mkdir(parents=True)
    return folder / "run"
