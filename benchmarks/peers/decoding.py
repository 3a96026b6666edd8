"""One system behind a pipe: builds or loads its model, then decodes every turn it reads the name of.

    PYTHON benchmarks/peers/decoding.py SYSTEM --models FOLDER [--threads 2] [--part 0 --parts 2]
    PYTHON benchmarks/peers/decoding.py SYSTEM --model HEADWAY_MODEL --text FILE

Reads lines `BEAM BATCH TURN` and answers one JSON line each. Weights are random and every output has a prescribed
number of tokens, which is checked; with `--model` the weights are trained and outputs end where the model ends them.
"""

import argparse
import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import workload
from loads import Decode, Load, forced, natural, one_by_one, padded, share
from trained import trained_headway, trained_headway_on_ctranslate2, trained_marian
from workload import DIM, END, HEADS, HIDDEN, LAYERS, PADDING, VOCABULARY

WORDS = ["<unk>", "<blank>", "<s>", "</s>", *(f"w{number}" for number in range(4, VOCABULARY))]
ADDED = VOCABULARY - 1
"""Marian's padding: behind the vocabulary, as in every published Marian model; CTranslate2 cuts this row off."""


@contextmanager
def made_once(folder: Path):
    """Whether this process has to fill the folder; others wait until it is done."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield not (folder / "done").exists()
        (folder / "done").touch()


def headway(options: argparse.Namespace) -> Decode:
    from headway.allocator import keep_freed_memory
    from headway.engine import Engine
    from headway.engine.readiness import ready
    from headway.models.transformer import Transformer, TransformerConfig
    from headway.search import DecodingConfig, Request, Symbols

    config = TransformerConfig(dim=DIM, heads=HEADS, hidden=HIDDEN, encoder_layers=LAYERS, decoder_layers=LAYERS)
    keep_freed_memory()  # as the command does
    model = ready(Transformer(config, VOCABULARY, VOCABULARY))
    engine = Engine(model, Symbols(start=workload.BEGIN, end=END, forbidden=(PADDING, workload.BEGIN)))

    def decode(load: Load, beam: int) -> list[int]:
        exactly = {"limit_ratio": 0.0, "limit_extra": load.length, "shortest_ratio": 0.0, "shortest_extra": load.length}
        asked = [Request(source=tuple(source)) for source in load.sources]
        found = engine.search(asked, DecodingConfig(beam=beam, length_penalty=0.0, **exactly))
        return [len(best.tokens) for best, *_ in found]

    return one_by_one(decode)


def random_marian() -> Any:
    from transformers import MarianConfig, MarianMTModel

    sides = {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in _SIDE.items()}
    symbols = {"pad_token_id": ADDED, "decoder_start_token_id": ADDED, "eos_token_id": END, "forced_eos_token_id": None}
    shape = {"vocab_size": VOCABULARY, "d_model": DIM, "max_position_embeddings": 512, **sides}
    config = MarianConfig(**shape, **symbols, activation_function="relu", scale_embedding=True)
    model = MarianMTModel(config).eval()
    model.generation_config.forced_eos_token_id = None
    model.generation_config.max_length = None
    return model


_SIDE = {"layers": LAYERS, "attention_heads": HEADS, "ffn_dim": HIDDEN}


def marian(options: argparse.Namespace) -> Decode:
    """Hugging Face's Marian and its `generate`."""
    model = random_marian()

    def decode(load: Load, beam: int) -> list[int]:
        tokens, _ = padded(load.sources, ADDED, end=[END])
        exactly = {"min_new_tokens": load.length, "max_new_tokens": load.length}
        found = model.generate(
            tokens, attention_mask=(tokens != ADDED).long(), num_beams=beam, do_sample=False, **exactly
        )
        return [found.shape[1] - 1] * len(found)

    return one_by_one(decode)


def ctranslate2(kind: str) -> Callable[[argparse.Namespace], Decode]:
    """Two workers of one thread each, as CTranslate2 advises; the model is a Marian through its own converter."""

    def build(options: argparse.Namespace) -> Decode:
        import ctranslate2 as library

        folder = options.models / "ctranslate2"
        with made_once(folder) as needed:
            if needed:
                convert(folder)
        translator = library.Translator(
            str(folder / "model"), inter_threads=options.threads, intra_threads=1, compute_type=kind
        )

        def decode(loads: list[Load], beam: int) -> list[int]:
            waiting = [
                translator.translate_batch(
                    [[WORDS[token] for token in [*source, END]] for source in load.sources],
                    beam_size=beam,
                    min_decoding_length=load.length,
                    max_decoding_length=load.length,
                    asynchronous=True,
                )
                for load in loads
            ]
            return [len(answer.result().hypotheses[0]) for answers in waiting for answer in answers]

        return decode

    return build


def convert(folder: Path) -> None:
    from ctranslate2.converters import TransformersConverter

    class Converter(TransformersConverter):
        """Takes its vocabulary from here: a random model has no tokenizer."""

        def load_tokenizer(self, *_: Any, **__: Any) -> Any:
            numbers = {word: number for number, word in enumerate([*WORDS[:ADDED], "<pad>"])}
            return SimpleNamespace(eos_token=WORDS[END], unk_token=WORDS[0], get_vocab=lambda: numbers)

    random_marian().save_pretrained(folder / "marian")
    Converter(str(folder / "marian")).convert(str(folder / "model"), force=True)


def trained(options: argparse.Namespace, name: str, config: dict[str, Any], command: list[str]) -> Path:
    """The folder in which a toolkit's own training command has made a model in two steps."""
    folder = options.models / name
    with made_once(folder) as needed:
        if needed:
            (folder / "vocabulary").write_text("\n".join(WORDS) + "\n")
            (folder / "text").write_text("w5 w6 w7\n" * 64)
            files = {"path_src": "text", "path_tgt": "text"}
            names = {"data": {"corpus": files}, "src_vocab": "vocabulary", "share_vocab": True}
            sizes = {"src_vocab_size": VOCABULARY, "tgt_vocab_size": VOCABULARY}
            (folder / "config.yaml").write_text(json.dumps(names | sizes | config))  # JSON is YAML
            program = Path(sys.executable).with_name(command[0])
            subprocess.run([program, *command[1:], "config.yaml"], cwd=folder, check=True)
    return folder


def opennmt(options: argparse.Namespace) -> Decode:
    config = {"encoder_type": "transformer", "decoder_type": "transformer", "layers": LAYERS, "hidden_size": DIM}
    config |= {"word_vec_size": DIM, "heads": HEADS, "transformer_ff": HIDDEN, "position_encoding": True}
    config |= {"share_embeddings": True, "share_decoder_embeddings": True, "param_init": 0, "param_init_glorot": True}
    config |= {"batch_size": 8, "bucket_size": 64, "num_workers": 0}
    config |= {"train_steps": 2, "save_checkpoint_steps": 2, "valid_steps": 100, "save_model": "model"}
    folder = trained(options, "opennmt", config, ["onmt_train", "-config"])
    os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = "1"  # its checkpoints hold more than weights

    from onmt.opts import translate_opts
    from onmt.translate.translator import build_translator
    from onmt.utils.parse import ArgumentParser

    parser = ArgumentParser()
    translate_opts(parser)
    files = ["-model", str(folder / "model_step_2.pt"), "-src", os.devnull, "-output", os.devnull]
    given = parser.parse_args([*files, "-gpu", "-1", "-max_length_ratio", "0"])
    ArgumentParser.validate_translate_opts(given)
    translator = build_translator(given, device_id=-1, report_score=False)
    return one_by_one(opennmt_like(translator, translator.translate_batch, features=True))


def eole(options: argparse.Namespace) -> Decode:
    embeddings = {"word_vec_size": DIM, "position_encoding_type": "SinusoidalInterleaved"}
    model = {"architecture": "transformer", "layers": LAYERS, "hidden_size": DIM, "heads": HEADS}
    model |= {"transformer_ff": HIDDEN, "share_embeddings": True, "share_decoder_embeddings": True}
    training = {"train_steps": 2, "save_checkpoint_steps": 2, "valid_steps": 100, "model_path": "model"}
    training |= {"batch_size": 8, "batch_type": "sents", "bucket_size": 64, "num_workers": 0, "compute_dtype": "fp32"}
    training |= {"world_size": 1, "gpu_ranks": []}
    config = {"model": model | {"embeddings": embeddings}, "training": training, "save_data": "data"}
    config |= {"overwrite": True, "n_sample": 0, "transforms": []}
    folder = trained(options, "eole", config, ["eole", "train", "-c"])

    from eole.config.run import PredictConfig
    from eole.predict import build_predictor

    found = {"model_path": [str(folder / "model" / "step_2")], "src": os.devnull, "compute_dtype": "fp32"}
    asked = PredictConfig(**found, world_size=1, gpu_ranks=[], max_length_ratio=0)
    predictor = build_predictor(asked, device_id=-1, report_score=False)
    return one_by_one(opennmt_like(predictor, predictor.predict_batch, features=False))


def opennmt_like(translator: Any, translate: Callable[..., Any], *, features: bool) -> Callable[[Load, int], list[int]]:
    """Decoding by OpenNMT-py or its successor; the older one has a last axis for word features."""

    def decode(load: Load, beam: int) -> list[int]:
        translator.beam_size, translator.min_length, translator.max_length = beam, load.length, load.length
        tokens, lengths = padded(load.sources, PADDING, end=[])
        places = list(range(len(lengths)))
        batch = {"src": tokens[:, :, None] if features else tokens, "srclen": lengths, "ind_in_bucket": places}
        unused = {"images": None, "prefix_len": None, "left_pad": False}
        found = translate(batch | unused | {"indices": torch.arange(len(places))}, False)
        return [sum(token != END for token in best.tolist()) for best, *_ in found["predictions"]]

    return decode


def joeynmt(options: argparse.Namespace) -> Decode:
    from joeynmt.batch import Batch
    from joeynmt.search import search
    from training import joeynmt as build

    model = build()[0].eval()

    def decode(load: Load, beam: int) -> list[int]:
        tokens, lengths = padded(load.sources, PADDING, end=[END])
        batch = Batch(
            src=tokens,
            src_length=lengths,
            src_prompt_mask=None,
            trg=None,
            trg_prompt_mask=None,
            indices=torch.arange(len(lengths)),
            device=torch.device("cpu"),
            pad_index=PADDING,
            eos_index=END,
            is_train=False,
        )
        exactly = {"min_output_length": load.length, "max_output_length": load.length}
        found, _, _ = search(model=model, batch=batch, beam_size=beam, beam_alpha=1.0, n_best=1, **exactly)
        return [int((row != PADDING).sum()) for row in found]

    return one_by_one(decode)


FORCED = {
    "headway": ("headway", headway),
    "marian": ("transformers", marian),
    "opennmt": ("OpenNMT-py", opennmt),
    "eole": ("eole", eole),
    "joeynmt": ("joeynmt", joeynmt),
    "ctranslate2": ("ctranslate2", ctranslate2("float32")),
    "ctranslate2-int8": ("ctranslate2", ctranslate2("int8")),
}
NATURAL = {
    "headway": ("headway", trained_headway),
    "headway-ctranslate2": ("ctranslate2", trained_headway_on_ctranslate2(int8=False)),
    "headway-ctranslate2-int8": ("ctranslate2", trained_headway_on_ctranslate2(int8=True)),
    "marian": ("transformers", trained_marian),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("system", choices=FORCED | NATURAL)
    parser.add_argument("--models", type=Path, help="where models with random weights are made and kept")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--text", type=Path)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--part", type=int, default=0)
    parser.add_argument("--parts", type=int, default=1)
    options = parser.parse_args()
    # Libraries print as they load: only our answers may reach the pipe; and they read the command line.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    sys.argv = sys.argv[:1]

    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    package, build = (NATURAL if options.model else FORCED)[options.system]
    decode = build(options)
    torch.set_grad_enabled(False)
    answers.write(json.dumps({"version": f"{package} {version(package)}, torch {torch.__version__}"}) + "\n")
    work: dict[int, list[list[Load]]] = {}
    for line in sys.stdin:
        beam, batch, turn = map(int, line.split())
        if batch not in work:
            whole = natural(options.text, options.turns) if options.model else forced(batch, options.turns)
            work[batch] = [share(loads, options.part, options.parts) for loads in whole]
        loads = work[batch][turn]
        if options.model and batch > 1:
            loads = [Load([source for load in loads for source in load.sources], 0)]
        worked = time.process_time()
        counts = decode(loads, beam)
        worked = time.process_time() - worked
        wanted = [load.length for load in loads for _ in load.sources]
        if any(wanted) and counts != wanted:
            sys.exit(f"{options.system}: outputs of {counts} tokens where {wanted} were asked for")
        answer = {"sentences": len(counts), "tokens": sum(counts), "processor_seconds": worked}
        answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
