"""G10: a hostile model folder is refused in one line; nothing is executed or written, and memory is bounded."""

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headway.errors import UserError
from headway.translator import load
from hostile_folders import MANIFEST, SPOILERS, seal, spoiled


@pytest.mark.parametrize("name", SPOILERS)
def test_a_hostile_folder_is_refused_in_one_line_that_names_it(name, model_folder, tmp_path, headway):
    given = spoiled(name, model_folder, tmp_path / "hostile")
    before = sorted(tmp_path.rglob("*"))
    outcome = headway("translate", given, stdin=b"le chat\n")
    complaint = outcome.only_complaint
    assert "hostile" in complaint or "config.json" in complaint
    assert len(complaint) < 3000
    assert complaint.isprintable()
    assert sorted(tmp_path.rglob("*")) == before


def test_a_newer_format_is_named(model_folder, tmp_path, headway):
    given = spoiled("newer_format", model_folder, tmp_path / "hostile")
    assert "format 2, this Headway reads format 1" in headway("translate", given).only_complaint


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("tensor_missing", "output.bias"),
        ("tensor_too_many", "more"),
        ("tensor_transposed", "target_embedding.weight is torch.float32 [16, 300], should be torch.float32 [300, 16]"),
        ("tensor_with_nan", "output.bias holds a number that is not finite"),
        ("tokenizer_with_fewer_tokens", "299 tokens, the model has 300"),
        ("link_to_weights_elsewhere", "model.safetensors: missing or not a plain file"),
        ("manifest_without_the_weights", "does not name model.safetensors"),
        ("position_table_of_terabytes", "model.longest"),
        ("tokenizer_that_splits_for_ever", "the expression '(?:a|a|.)*b' is none of the known ones"),
        ("tokenizer_that_multiplies_a_letter", "its normalizer makes a text more than 256 times longer"),
        ("tokenizer_without_an_unknown_piece", "its model has no unknown token"),
        ("sentencepiece_that_multiplies_a_letter", "its normalizer makes a text more than 256 times longer"),
        ("heads_that_do_not_divide", "dim 16 is not divisible by heads 3"),
    ],
)
def test_the_line_says_what_is_wrong(name, told, model_folder, tmp_path, headway):
    assert told in headway("translate", spoiled(name, model_folder, tmp_path / "hostile")).only_complaint


@pytest.mark.parametrize("name", [name for name in SPOILERS if name.startswith(("tokenizer", "sentencepiece"))])
def test_a_hostile_tokenizer_is_refused_before_a_library_says_anything(name, model_folder, tmp_path, capfd):
    with pytest.raises(UserError):
        load(spoiled(name, model_folder, tmp_path / "hostile"))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["tokenizer_that_splits_for_ever", "tokenizer_that_multiplies_a_letter",
                                  "sentencepiece_of_noise", "sentencepiece_that_multiplies_a_letter"])  # fmt: skip
def test_a_hostile_tokenizer_that_a_recipe_names_is_refused(name, model_folder, tmp_path, train):
    given = spoiled(name, model_folder, tmp_path / "hostile")
    file = given / ("tokenizer.json" if name.startswith("tokenizer") else "tokenizer.model")
    assert f"{file}: " in train(tokenizer__file=file).complaint
    assert not (tmp_path / "run").exists()


WATCHED = """
import json, os, pickle, resource, sys, sentencepiece
from pathlib import Path
from headway.errors import UserError
from headway.translator import load

good, root, report = map(Path, sys.argv[1:])
load(good)("le chat")  # whatever is imported late is imported now
ours = (sys.prefix, sys.base_prefix, str(Path(sys.modules["headway"].__file__).parent), "<frozen")
CALLS = ("pickle.find_class", "os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty",
         "socket.connect", "socket.bind", "ctypes.dlopen", "os.remove", "os.rename", "os.mkdir", "os.rmdir",
         "os.symlink", "os.link", "os.chmod", "os.truncate")
seen, watching = [], False

def hook(event, arguments):
    if not watching:
        return
    if event in CALLS:
        seen.append([event, repr(arguments)[:200]])
    elif event in ("exec", "compile"):
        name = arguments[0].co_filename if event == "exec" else str(arguments[1])
        if not name.startswith(ours):
            seen.append([event, name])
    elif event == "open":
        name, mode, flags = arguments
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND):
            seen.append([event, repr((name, mode, flags))])

sys.addaudithook(hook)
before, refused, loaded = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 0, []
for given in map(Path, json.loads((root / "given.json").read_text())):
    os.chdir(root)
    watching = True
    try:
        load(given)("le chat")
        loaded.append(given.name)
    except UserError:
        refused += 1
    finally:
        watching = False
grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
inside = [name for name, module in sys.modules.items() if str(getattr(module, "__file__", "")).startswith(str(root))]
found = dict(seen=list(seen), refused=refused, loaded=loaded, grown=grown, inside=inside)
seen.clear()
watching = True
pickle.loads((root / "pickle_as_weights" / "model.safetensors").read_bytes())  # the hook does see one go off
watching = False
report.write_text(json.dumps(found | {"control": [event for event, _ in seen]}))
"""


def test_no_hostile_folder_executes_writes_or_takes_memory(model_folder, tmp_path):
    root, report = tmp_path / "hostile", tmp_path / "report.json"
    root.mkdir()
    given = [str(spoiled(name, model_folder, root / name)) for name in SPOILERS]
    friendly = shutil.copytree(model_folder, root / "with_code")
    for name in ("__init__.py", "sitecustomize.py", "modeling.py", "torch.py", "headway.py"):
        (friendly / name).write_text("open('pwned', 'w')\n")
    seal(friendly)
    (root / "given.json").write_text(json.dumps([*given, str(friendly)]))
    files = sorted(path for path in tmp_path.rglob("*"))
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run(
        [sys.executable, "-c", WATCHED, model_folder, root, report],
        check=True, timeout=600, env=environment, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    found = json.loads(report.read_text())
    report.unlink()
    (root / "pwned").unlink()
    assert {"pickle.find_class", "os.system"} <= set(found["control"])
    assert found["seen"] == []
    assert found["inside"] == []
    assert found["refused"] == len(SPOILERS)
    assert found["loaded"] == ["with_code"]
    assert found["grown"] < 300  # MiB; the largest file is read whole, 80 of them
    assert sorted(path for path in tmp_path.rglob("*")) == files


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", MANIFEST])
def test_a_mutated_file_under_a_matching_manifest_loads_or_is_refused_and_nothing_else(name, model_folder, tmp_path):
    chance = random.Random(name)
    content = (model_folder / name).read_bytes()
    folder = shutil.copytree(model_folder, tmp_path / "hostile")
    header = content[: 8 + int.from_bytes(content[:8], "little")] if name == "model.safetensors" else content
    refused = 0
    for _ in range(60):
        mutated = bytearray(content)
        for _ in range(chance.choice((1, 1, 2, 8))):
            place = chance.randrange(min(len(header), len(mutated)))
            match chance.randrange(4):
                case 0:
                    mutated[place] ^= 1 << chance.randrange(8)
                case 1:
                    mutated[place] = chance.choice(b'0123456789-."[]{},e')
                case 2:
                    del mutated[place : place + chance.randrange(1, 40)]
                case 3:
                    mutated[place:place] = mutated[chance.randrange(len(mutated)) :][: chance.randrange(1, 40)]
        (folder / name).write_bytes(mutated)
        if name != MANIFEST:
            seal(folder)
        try:
            load(folder)("le chat", beam=1)
        except UserError as error:
            refused += 1
            assert str(error)
    assert refused > 20


def test_a_folder_whose_code_was_left_beside_the_model_still_loads(model_folder, tmp_path):
    folder = shutil.copytree(model_folder, Path(tmp_path) / "copy")
    (folder / "torch.py").write_text("raise SystemExit('executed')\n")
    assert load(folder).source.size == 300
