import numpy as np
import pytest
import torch

from headway.data.tokenizer import Tokenizer, TokenizerConfig
from headway.errors import ConfigError
from headway.nn.embedding import Embedding
from headway.start import start_from_vectors

TEXTS = ["le chat dort", "un chat mange", "le chien dort"] * 20


@pytest.mark.parametrize("kind", ["words", "bpe"])
def test_an_embedding_starts_from_the_vectors_of_its_words(tmp_path, kind):
    tokenizer = Tokenizer.train(TEXTS, TokenizerConfig(kind=kind, vocabulary=300))
    path = tmp_path / "vectors.txt"
    path.write_text("chat 1 2 3 4\nchien 0.5 0.5 0.5 0.5\nzebra 9 9 9 9\n")
    embedding = Embedding(tokenizer.size, 4)
    before = embedding.weight.detach().clone()
    assert start_from_vectors(embedding, path, tokenizer) == 2
    (chat,), (dort,) = tokenizer.encode(["chat"]), tokenizer.encode(["dort"])
    assert embedding(torch.tensor(chat))[0].tolist() == pytest.approx([1, 2, 3, 4])
    assert torch.equal(embedding.weight[dort], before[dort])
    assert int((embedding.weight != before).any(1).sum()) == 2


def test_binary_vectors_serve_alike(tmp_path):
    tokenizer = Tokenizer.train(TEXTS, TokenizerConfig(kind="words"))
    vector = np.array([0.1, -2.5, 3.0, 8.0], "<f4")
    (tmp_path / "vectors.bin").write_bytes(b"1 4\n" + b"chien " + vector.tobytes() + b"\n")
    embedding = Embedding(tokenizer.size, 4)
    assert start_from_vectors(embedding, tmp_path / "vectors.bin", tokenizer) == 1
    (chien,) = tokenizer.encode(["chien"])
    assert embedding(torch.tensor(chien))[0].tolist() == pytest.approx(vector.tolist())


def test_vectors_of_another_width_are_refused(tmp_path):
    tokenizer = Tokenizer.train(TEXTS, TokenizerConfig(kind="words"))
    (tmp_path / "vectors.txt").write_text("chat 1 2 3\n")
    with pytest.raises(ConfigError, match=r"3 features, model.dim is 4"):
        start_from_vectors(Embedding(tokenizer.size, 4), tmp_path / "vectors.txt", tokenizer)
