"""G4: whatever happens to the files of a checkpoint, it is noticed, named, and the newest good one is taken instead."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from runs import result
from states import FACTS, State, series

from headway.errors import FolderError
from headway.folders import MANIFEST, verify_folder
from headway.training.checkpoint import Checkpoints

STEPS = [4, 8, 12]
FILES = ["model.safetensors", "optimiser.safetensors", "random.safetensors", "progress.json", MANIFEST]


# What can happen to one file: each takes its content, another file's content and randomness, and gives the new content.


def bit(content, other, chance):
    place = chance.randrange(len(content))
    return content[:place] + bytes([content[place] ^ 1 << chance.randrange(8)]) + content[place + 1 :]


def block(content, other, chance):
    start = chance.randrange(len(content))
    zeros = bytes(min(chance.choice((1, 16, 512, 4096)), len(content) - start))
    return content[:start] + zeros + content[start + len(zeros) :]


def truncate(content, other, chance):
    return content[: chance.randrange(len(content))]


def append(content, other, chance):
    return content + chance.randbytes(chance.choice((1, 100, 5000)))


def swap(content, other, chance):
    return other


def mix(content, other, chance):
    place = chance.randrange(1, max(2, min(len(content), len(other))))
    return other[:place] + content[place:]


def delete(content, other, chance):
    return None


MUTATIONS = [bit, bit, bit, block, truncate, append, swap, mix, delete]


@pytest.fixture
def good(tmp_path):
    """A folder with checkpoints of three steps, the digest of each, and a state to load into."""
    folder = tmp_path / "checkpoints"
    return folder, series(folder, STEPS), State(seed=9)


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def check(folder: Path, digests: dict[int, str], state: State) -> tuple[int | None, list[str]]:
    """Which step is taken and what is said; what is loaded must be what was saved."""
    said: list[str] = []
    checkpoints = Checkpoints(folder, FACTS)
    step = checkpoints.latest(said.append)
    assert all(line.isprintable() and len(line) < 1000 for line in said)
    if step is not None:
        assert state.load(checkpoints, step) == digests[step]
    return step, said


def test_a_thousand_mutations_of_every_file_are_noticed_and_the_newest_good_checkpoint_is_taken(good, chance, tally):
    folder, digests, state = good
    originals = contents(folder)
    assert sorted({path.name for path in originals}) == sorted(FILES)
    seen = dict.fromkeys(originals, 0)
    harmless = 0
    for number in range(tally.expect(1000, 20_000)):
        path = list(originals)[number % len(originals)]
        mutate = chance.choice(MUTATIONS)
        other = chance.choice([each for each in originals if each != path and originals[each] != originals[path]])
        content = mutate(originals[path], originals[other], chance)
        if content == originals[path]:  # zeros written over zeros
            content = bit(content, b"", chance)
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content)
        seen[path] += 1
        hurt = int(path.parent.name[5:])
        heard: list[str] = []
        sound = Checkpoints(folder, FACTS).sound(hurt, heard.append)
        step, said = check(folder, digests, state)
        if sound:
            # Only a manifest has bytes without meaning, and what it says must be what it said.
            assert path.name == MANIFEST and json.loads(content) == json.loads(originals[path]), (mutate, path)
            harmless += 1
        else:
            assert len(heard) == 1 and path.parent.name in heard[0], heard
        left = [each for each in STEPS if each != hurt or sound]
        assert step == max(left)
        assert said == (heard if hurt == STEPS[-1] else [])
        path.write_bytes(originals[path])
        tally.passed += 1
    assert all(count > 50 for count in seen.values())
    assert harmless <= tally.count // 50
    assert check(folder, digests, state) == (STEPS[-1], [])


def test_one_mutation_of_two_is_noticed_even_where_two_files_are_hit(good, chance):
    folder, digests, state = good
    originals = contents(folder)
    for _ in range(100):
        hurt = chance.sample(list(originals), 2)
        for path, other in zip(hurt, reversed(hurt), strict=True):
            path.write_bytes(chance.choice([bit, block, truncate, swap])(originals[path], originals[other], chance))
        check(folder, digests, state)
        for path in hurt:
            path.write_bytes(originals[path])


# What can happen to a folder.


def name(step: int) -> str:
    return f"step-{step:09d}"


def renamed(folder):
    (folder / name(12)).rename(folder / name(16))
    return 8, [name(16)]


def renamed_backwards(folder):
    (folder / name(12)).rename(folder / name(6))
    return 8, []


def copied_forwards(folder):
    shutil.copytree(folder / name(4), folder / name(99))
    return 12, [name(99)]


def exchanged(folder):
    (folder / name(8)).rename(folder / "aside")
    (folder / name(12)).rename(folder / name(8))
    (folder / "aside").rename(folder / name(12))
    return 4, [name(12), name(8)]


def emptied(folder):
    for path in (folder / name(12)).iterdir():
        path.unlink()
    return 8, [name(12)]


def removed(folder):
    shutil.rmtree(folder / name(12))
    return 8, []


def a_file_instead(folder):
    shutil.rmtree(folder / name(12))
    (folder / name(12)).write_bytes(b"not a folder")
    return 8, [name(12)]


def a_link_to_another_step(folder):
    shutil.rmtree(folder / name(12))
    (folder / name(12)).symlink_to(folder / name(8))
    return 8, [name(12)]


def a_link_to_nowhere(folder):
    (folder / name(13)).symlink_to("nowhere")
    return 12, [name(13)]


def a_link_instead_of_weights(folder):
    weights = folder / name(12) / "model.safetensors"
    weights.rename(folder / "elsewhere")
    weights.symlink_to(folder / "elsewhere")
    return 8, [name(12)]


def a_folder_instead_of_weights(folder):
    (folder / name(12) / "model.safetensors").unlink()
    (folder / name(12) / "model.safetensors").mkdir()
    return 8, [name(12)]


def of_another_run(folder):
    state = State(seed=5)
    state.move(13)
    state.save(Checkpoints(folder, {"kind": "checkpoint", "data": ["another", "one"]}))
    return 12, [name(13)]


def a_newer_format(folder):
    path = folder / name(12) / MANIFEST
    path.write_text(path.read_text().replace('"format": 1', '"format": 2'))
    return 8, [name(12)]


def weights_that_the_manifest_does_not_name(folder):
    path = folder / name(12) / MANIFEST
    tree = json.loads(path.read_bytes())
    del tree["files"]["model.safetensors"]
    path.write_text(json.dumps(tree))
    (folder / name(12) / "model.safetensors").write_bytes((folder / name(8) / "model.safetensors").read_bytes())
    return 8, [name(12)]


def odd_names(folder):
    for odd in ("step-", "step-x", "step-12", "step-²", "step-١٢", "step--5", "step-000000013.tmp", "step-1e9"):
        (folder / odd).mkdir()
    return 12, None


def a_number_beyond_count(folder):
    (folder / f"step-{'9' * 200}").mkdir()
    return 12, None


def everything_damaged(folder):
    for step in STEPS:
        (folder / name(step) / "model.safetensors").write_bytes(b"")
    return None, [name(step) for step in reversed(STEPS)]


FOLDERS = [
    renamed, renamed_backwards, copied_forwards, exchanged, emptied, removed, a_file_instead, a_link_to_another_step,
    a_link_to_nowhere, a_link_instead_of_weights, a_folder_instead_of_weights, of_another_run, a_newer_format,
    weights_that_the_manifest_does_not_name, odd_names, a_number_beyond_count, everything_damaged,
]  # fmt: skip


@pytest.mark.parametrize("change", FOLDERS, ids=lambda change: change.__name__)
def test_a_folder_that_is_not_what_it_was_is_skipped_by_name(change, good):
    folder, digests, state = good
    wanted, skipped = change(folder)
    step, said = check(folder, digests, state)
    assert step == wanted
    if skipped is not None:
        assert [place in line for place, line in zip(skipped, said, strict=True)] == [True] * len(skipped), said


def test_a_file_that_cannot_be_read_is_a_damaged_one(good, monkeypatch):
    folder, digests, state = good
    unreadable = folder / name(12) / "optimiser.safetensors"
    opened = Path.open

    def refuse(self, *given, **named):
        if self == unreadable:
            raise OSError(5, "Input/output error", str(self))
        return opened(self, *given, **named)

    monkeypatch.setattr(Path, "open", refuse)
    step, said = check(folder, digests, state)
    assert step == 8
    assert len(said) == 1 and "optimiser.safetensors" in said[0] and "Input/output error" in said[0]


NOT_OURS = ("a_file_instead", "a_link_to_another_step", "a_link_instead_of_weights", "a_folder_instead_of_weights")
"""Changes that no damage makes: somebody put something there, which is refused by name and stays."""


@pytest.mark.parametrize("change", FOLDERS, ids=lambda change: change.__name__)
def test_the_next_save_and_prune_go_well_whatever_was_found(change, good):
    """Whoever resumes after damage must also be able to save."""
    folder, digests, state = good
    change(folder)
    step, _ = check(folder, digests, state)
    if step is None:
        state = State(seed=9)
    state.move(12 if step != 12 else 16)
    checkpoints = Checkpoints(folder, FACTS)
    if change.__name__ in NOT_OURS:
        for work in (lambda: checkpoints.refuse_foreign(step), lambda: state.save(checkpoints)):
            with pytest.raises(FolderError, match=r"was not written by Headway.*move it elsewhere"):
                work()
        return
    state.save(checkpoints)
    checkpoints.prune(state.progress.step, set())
    assert verify_folder(checkpoints.path(state.progress.step))["step"] == state.progress.step
    wanted = torch.get_rng_state(), state.digest()
    assert State(seed=3).load(checkpoints, state.progress.step) == wanted[1]


def test_a_flip_that_nobody_looked_for_would_be_loaded_silently(good):
    """What the manifest is for: the same bytes without it load without a word."""
    from safetensors.torch import load_file

    folder, _, _ = good
    path = folder / name(12) / "model.safetensors"
    before = {key: value.clone() for key, value in load_file(path).items()}  # which map the file
    content = bytearray(path.read_bytes())
    content[-3] ^= 64
    path.write_bytes(content)
    assert any(not torch.equal(before[key], value) for key, value in load_file(path).items())


def test_a_damaged_run_goes_on_from_the_newest_good_checkpoint_and_ends_as_it_would_have(runs, unbroken, tmp_path):
    hurt = tmp_path / "hurt"
    shutil.copytree(unbroken, hurt)
    shutil.rmtree(hurt / "best")
    newest = max((hurt / "checkpoints").iterdir())
    with (newest / "optimiser.safetensors").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\x7f")
    ended = runs.train(hurt)
    assert ended.code == 0, ended.err
    assert any(newest.name in line and "optimiser.safetensors" in line for line in ended.lines)
    assert result(hurt) == result(unbroken)
