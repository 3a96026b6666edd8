"""Which texts a vocabulary is learnt from."""

import pytest

from headway.config import validated
from headway.data.config import DataConfig
from headway.data.preparation import divide, learn_tokenizers
from headway.data.tokenizer import TokenizerConfig


def quiet(*_):
    pass


@pytest.mark.parametrize("joint", [True, False])
def test_each_side_learns_its_own_vocabulary_unless_they_share_one(joint, tmp_path):
    (tmp_path / "source").write_text("le chat\nle chien\n" * 30)
    (tmp_path / "target").write_text("the cat\nthe dog\n" * 30)
    (tmp_path / "valid").write_text("un\n")
    files = {"source": "source", "target": "target", "valid_source": "valid", "valid_target": "valid"}
    config = validated(DataConfig, {"folder": str(tmp_path), **files}, "test")
    settings = TokenizerConfig(kind="words", joint=joint)
    source, target = learn_tokenizers(config, settings, divide(config, quiet), quiet)
    words = [set(each.words()) for each in (source, target)]
    assert {"chat", "chien"} <= words[0] and {"cat", "dog"} <= words[1]
    assert ("cat" in words[0], "chat" in words[1]) == (joint, joint)
