"""Systems that decode with the weights of a trained Headway model, from text to text."""

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from loads import Decode, Load, one_by_one, padded

MARIAN_BATCH = 32


def trained_headway(options: argparse.Namespace) -> Decode:
    """A trained model as a user calls it: texts in, texts out, batches of its own choice."""
    from headway.translator import load as load_translator

    return one_by_one(called(load_translator(options.model)))


def trained_headway_on_ctranslate2(*, int8: bool) -> Callable[[argparse.Namespace], Decode]:
    """The same with CTranslate2 as the engine."""

    def build(options: argparse.Namespace) -> Decode:
        from headway.interop.ctranslate2 import CTranslate2Backend
        from headway.translator import load as load_translator

        translator = load_translator(options.model)
        backend = CTranslate2Backend.of(translator, int8=int8, workers=options.threads)
        return one_by_one(called(replace(translator, backend=backend)))

    return build


def called(translator: Any) -> Callable[[Load, int], list[int]]:
    return lambda load, beam: [len(each.hypotheses[0].tokens) for each in translator(load.sources, beam=beam)]


def trained_marian(options: argparse.Namespace) -> Decode:
    """The same weights in Hugging Face's Marian, with Headway's tokenizer; texts of like length together."""
    from headway.translator import load as load_translator

    translator = load_translator(options.model)
    model = twin(translator)
    start, end, padding = translator.target.start, translator.target.end, translator.target.padding
    never = sorted({padding, start, *translator.target.tags.values()} - {end})

    def decode(load: Load, beam: int) -> list[int]:
        sources = translator.tokenize(load.sources)
        order = sorted(range(len(sources)), key=lambda place: len(sources[place]))
        texts, counts = [""] * len(sources), []
        for begin in range(0, len(order), MARIAN_BATCH):
            places = order[begin : begin + MARIAN_BATCH]
            tokens, lengths = padded([sources[place] for place in places], padding, end=[end])
            found = model.generate(
                tokens,
                attention_mask=(torch.arange(tokens.shape[1]) < lengths[:, None]).long(),
                num_beams=beam,
                do_sample=False,
                suppress_tokens=never,
                max_new_tokens=translator.decoding.limit(tokens.shape[1]),
                **({"length_penalty": translator.decoding.length_penalty} if beam > 1 else {}),
            )
            for place, row in zip(places, found[:, 1:].tolist(), strict=True):
                output = row[: row.index(end)] if end in row else row
                texts[place] = translator.detokenize(output)
                counts.append(len(output))
        return counts

    return one_by_one(decode)


def twin(translator: Any) -> Any:
    """A Marian that computes what the Headway model computes, which is checked; only one architecture allows it."""
    from transformers import MarianConfig, MarianMTModel

    from headway.sequences import Sequences

    ours, symbols = translator.model, translator.target
    config = ours.config
    if (config.norm, config.positions, config.tie) != ("post", "sinusoidal", "three-way"):
        sys.exit("marian: only a post-norm model with sinusoidal positions and three-way tying can be copied")
    sides = {f"{side}_attention_heads": config.heads for side in ("encoder", "decoder")}
    sides |= {f"{side}_ffn_dim": config.hidden for side in ("encoder", "decoder")}
    shape = {"vocab_size": symbols.size, "d_model": config.dim, "max_position_embeddings": config.longest, **sides}
    shape |= {"encoder_layers": config.encoder_layers, "decoder_layers": config.decoder_layers}
    shape |= {"activation_function": config.feedforward, "scale_embedding": True, "forced_eos_token_id": None}
    known = {"pad_token_id": symbols.padding, "eos_token_id": symbols.end, "decoder_start_token_id": symbols.start}
    model = MarianMTModel(MarianConfig(**shape, **known)).eval()
    model.generation_config.forced_eos_token_id = model.generation_config.max_length = None
    model.load_state_dict(renamed(ours), strict=False)
    source, target = [[*range(4, 24), symbols.end]], [[symbols.start, *range(24, 4, -1)]]
    with torch.inference_mode():
        expected = ours.output(ours(Sequences.pad(source, symbols.padding), Sequences.pad(target, symbols.padding)))
        given = model(input_ids=torch.tensor(source), decoder_input_ids=torch.tensor(target)).logits
    difference = float((given - expected).abs().max())
    if difference > 1e-4:
        sys.exit(f"marian: its logits differ by {difference} from Headway's; it is not the same model")
    return model


def renamed(model: Any) -> dict[str, torch.Tensor]:
    """Headway's weights by Marian's names; the positions stay Marian's own."""
    shared = ("shared", "encoder.embed_tokens", "decoder.embed_tokens")
    found = {f"model.{place}.weight": model.target_embedding.weight for place in shared}
    found |= {"lm_head.weight": model.target_embedding.weight, "final_logits_bias": model.output.bias[None]}
    for side in ("encoder", "decoder"):
        for number, layer in enumerate(getattr(model, side).layers):
            base = f"model.{side}.layers.{number}"
            for name, weight in layer.named_parameters():
                module, _, kind = name.rpartition(".")  # kind: weight or bias
                if module in _ATTENTIONS:
                    projections = zip("qkv", weight.chunk(3), strict=True)
                    found |= {
                        f"{base}.{_ATTENTIONS[module]}.{letter}_proj.{kind}": part for letter, part in projections
                    }
                else:
                    found[f"{base}.{_PARTS[module]}.{kind}"] = weight
    return {name: weight.detach() for name, weight in found.items()}


_ATTENTIONS = {"attention.inputs": "self_attn", "cross.inputs": "encoder_attn"}
_PARTS = {
    "attention.output": "self_attn.out_proj",
    "attention_residual.norm": "self_attn_layer_norm",
    "cross.output": "encoder_attn.out_proj",
    "cross_residual.norm": "encoder_attn_layer_norm",
    "feedforward.inner": "fc1",
    "feedforward.outer": "fc2",
    "feedforward_residual.norm": "final_layer_norm",
}
