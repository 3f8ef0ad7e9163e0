"""Models of other people's libraries as their users build them, in small configurations.

Contract: `PUBLISHED` maps a name to what builds the model; it imports the library, which may be missing. The
model's call gives outputs, `loss` a number of outputs and targets, `layout` both from bytes. Nothing in it is
written for tracing.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

VOCABULARY, LENGTH, CLASSES = 97, 12, 5


@dataclass(frozen=True)
class Tokens:
    """A byte is a token; inputs and targets are the same sequence."""

    length: int = LENGTH

    @property
    def record_size(self) -> int:
        return self.length

    def split(self, batch: Tensor) -> tuple[Tensor, Tensor]:
        return batch.long(), batch.long()


@dataclass(frozen=True)
class Pictures:
    """Pixels of a square picture, then its label; `dense`: a label for each pixel instead."""

    side: int = 32
    dense: bool = False

    @property
    def record_size(self) -> int:
        return 3 * self.side**2 + (self.side**2 if self.dense else 1)

    def split(self, batch: Tensor) -> tuple[Tensor, Tensor]:
        pixels = 3 * self.side**2
        x = batch[:, :pixels].float().view(-1, 3, self.side, self.side) / 50 - 1
        y = batch[:, pixels:].long() % CLASSES
        return x, y.view(-1, self.side, self.side) if self.dense else y.view(-1)


Layout = Tokens | Pictures


def outputs_loss(outputs: Any, targets: Tensor) -> Tensor:
    """What a model that is given labels returns."""
    return outputs.loss


def logits_loss(outputs: Any, targets: Tensor) -> Tensor:
    """Cross entropy of logits, which libraries return under several names."""
    for name in ("logits", "sample"):
        outputs = getattr(outputs, name, outputs)
    outputs = outputs["out"] if isinstance(outputs, dict) else outputs
    return F.cross_entropy(outputs, targets)


def square_loss(outputs: Any, targets: Tensor) -> Tensor:
    """Mean square of whatever tensors there are."""
    found = outputs.to_tuple() if hasattr(outputs, "to_tuple") else (outputs,)
    return torch.stack([(x * x).mean() for x in found if isinstance(x, Tensor)]).sum()


@dataclass(frozen=True)
class Published:
    """A model, how bytes become its batch, and its loss."""

    library: str
    build: Callable[[Any], nn.Module]
    layout: Layout
    loss: Callable[[Any, Tensor], Tensor]
    rows: int = 2
    chaotic: bool = False
    """Whether native fp32's own gradient says nothing beside float64's: then it is traced, and runs."""

    def model(self) -> nn.Module:
        """Built from seed 0, with random choices that change nothing: dropout of nothing."""
        torch.manual_seed(0)
        declare_operators()
        made = self.build(importlib.import_module(self.library))
        for part in made.modules():
            for name in ("p", "drop_prob", "attention_dropout", "dropout", "activation_dropout"):
                if isinstance(getattr(part, name, None), float):
                    setattr(part, name, 0.0)
        return made.train()


@cache
def declare_operators() -> None:
    """A torchvision for CUDA beside a PyTorch for the CPU cannot load its own operators, which no model here
    uses, and is imported only where these are declared."""
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            torch.library.define(
                f"torchvision::{name}", "(Tensor dets, Tensor scores, float least) -> Tensor"
            )


PUBLISHED: dict[str, Published] = {}


class Asked(nn.Module):
    """A model that is called in its own way."""

    def __init__(self, model: nn.Module, ask: Callable[[Any, Tensor], Any]) -> None:
        super().__init__()
        self.model, self._ask = model, ask

    def forward(self, x: Tensor) -> Any:
        return self._ask(self.model, x)


# transformers

SMALL = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def _labelled(model: Any, x: Tensor) -> Any:
    return model(input_ids=x, labels=x)


def language(name: str, config: str, model: str, **given: Any) -> None:
    """A language model of transformers with its own loss; what is None of SMALL is left out."""

    def build(library: Any) -> nn.Module:
        chosen = {k: v for k, v in {**SMALL, **given}.items() if v is not None}
        return Asked(getattr(library, model)(getattr(library, config)(**chosen)), _labelled)

    PUBLISHED[name] = Published("transformers", build, Tokens(), outputs_loss)


def named(family: str) -> tuple[str, str]:
    return f"{family}Config", f"{family}ForCausalLM"


GROUPED: dict[str, Any] = {"num_key_value_heads": 2}
EXPERTS: dict[str, Any] = {
    **GROUPED,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "decoder_sparse_step": 1,
    "shared_expert_intermediate_size": 24,
}
GEMMA: dict[str, Any] = {**GROUPED, "head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 8}
GPT2: dict[str, Any] = {
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 64,
    **dict.fromkeys(("hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings")),
}

language("gpt2", "GPT2Config", "GPT2LMHeadModel", **GPT2)
language("gptj", *named("GPTJ"), rotary_dim=4, **GPT2)
language("llama", *named("Llama"), **GROUPED)
language("qwen2", *named("Qwen2"), **GROUPED)
language("qwen3", *named("Qwen3"), **GROUPED, head_dim=8)
language("mistral", *named("Mistral"), **GROUPED, sliding_window=8)
language("gemma", *named("Gemma"), **GROUPED, head_dim=8)
language("gemma2", *named("Gemma2"), **GEMMA)
language("gemma3", "Gemma3TextConfig", "Gemma3ForCausalLM", **GEMMA)
language("phi", *named("Phi"))
language("phi3", *named("Phi3"), **GROUPED)
language("gpt_neox", *named("GPTNeoX"))
language("falcon", *named("Falcon"))
language("bloom", *named("Bloom"), n_layer=2, n_head=4)
language("opt", "OPTConfig", "OPTForCausalLM", ffn_dim=48, word_embed_proj_dim=32)
language("stablelm", *named("StableLm"), **GROUPED)
language("olmo2", *named("Olmo2"), **GROUPED)
language("smollm3", *named("SmolLM3"), **GROUPED)
language("granite", *named("Granite"), **GROUPED)
language("cohere", *named("Cohere"), **GROUPED)
language("starcoder2", *named("Starcoder2"), **GROUPED)
language("glm4", *named("Glm4"), **GROUPED, head_dim=8)
language("mixtral", *named("Mixtral"), **GROUPED, num_local_experts=4)
language("qwen2_moe", *named("Qwen2Moe"), **EXPERTS)
language("qwen3_moe", *named("Qwen3Moe"), **EXPERTS, head_dim=8)
language("olmoe", *named("Olmoe"), **GROUPED, num_experts=4, num_experts_per_tok=2)
language("gpt_oss", *named("GptOss"), **GROUPED, head_dim=8, num_local_experts=4, num_experts_per_tok=2)
language("mamba", *named("Mamba"), state_size=4)
language("mamba2", *named("Mamba2"), state_size=4, num_heads=4, head_dim=16, n_groups=1, chunk_size=4)
language("rwkv", *named("Rwkv"), attention_hidden_size=32)
language("bert", "BertConfig", "BertForMaskedLM")
language("bert_classifier", "BertConfig", "BertForTokenClassification", num_labels=VOCABULARY)
language(
    "distilbert", "DistilBertConfig", "DistilBertForMaskedLM", dim=32, n_layers=2, n_heads=4, hidden_dim=48
)
language("roberta", "RobertaConfig", "RobertaForMaskedLM")
language("albert", "AlbertConfig", "AlbertForMaskedLM", embedding_size=16)
language("electra", "ElectraConfig", "ElectraForMaskedLM", embedding_size=16)
language(
    "deberta_v2",
    "DebertaV2Config",
    "DebertaV2ForMaskedLM",
    relative_attention=True,
    pos_att_type=["c2p", "p2c"],
)
language(
    "modernbert",
    "ModernBertConfig",
    "ModernBertForMaskedLM",
    local_attention=8,
    cls_token_id=1,
    sep_token_id=2,
)
T5: dict[str, Any] = {
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 48,
    "num_layers": 2,
    "num_heads": 4,
    "decoder_start_token_id": 0,
}
language("t5", "T5Config", "T5ForConditionalGeneration", **T5)
BART: dict[str, Any] = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "decoder_start_token_id": 2,
}
language("bart", "BartConfig", "BartForConditionalGeneration", **BART)


def pictured(
    name: str, config: str, model: str, *, side: int = 32, loss: Any = logits_loss, **given: Any
) -> None:
    """A model of transformers that takes pictures."""

    def build(library: Any) -> nn.Module:
        chosen = {
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 48,
        }
        chosen |= {"image_size": side, "num_labels": CLASSES, "patch_size": 8, **given}
        chosen = {k: v for k, v in chosen.items() if v is not None}
        return getattr(library, model)(getattr(library, config)(**chosen))

    PUBLISHED[name] = Published("transformers", build, Pictures(side), loss)


STAGES: dict[str, Any] = dict.fromkeys(
    ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
)
pictured("vit", "ViTConfig", "ViTForImageClassification")
pictured("deit", "DeiTConfig", "DeiTForImageClassification")
pictured("beit", "BeitConfig", "BeitForImageClassification", use_mask_token=False)
pictured("dinov2", "Dinov2Config", "Dinov2ForImageClassification")
pictured(
    "convnext",
    "ConvNextConfig",
    "ConvNextForImageClassification",
    **{**STAGES, "patch_size": 4},
    hidden_sizes=[8, 16, 24, 32],
    depths=[1, 1, 1, 1],
)
pictured(
    "swin",
    "SwinConfig",
    "SwinForImageClassification",
    **{**STAGES, "patch_size": 2},
    embed_dim=16,
    depths=[2, 2],
    num_heads=[2, 4],
    window_size=4,
)
pictured(
    "segformer",
    "SegformerConfig",
    "SegformerForImageClassification",
    **STAGES,
    hidden_sizes=[8, 16, 24, 32],
    depths=[1, 1, 1, 1],
    num_attention_heads_=0,
    decoder_hidden_size=16,
)
pictured(
    "mobilevit",
    "MobileViTConfig",
    "MobileViTForImageClassification",
    side=64,
    **{**STAGES, "patch_size": 2},
    hidden_sizes=[16, 24, 32],
    neck_hidden_sizes=[8, 8, 16, 16, 24, 24, 32],
)
pictured(
    "resnet",
    "ResNetConfig",
    "ResNetForImageClassification",
    **STAGES,
    embedding_size=8,
    hidden_sizes=[8, 16],
    depths=[1, 1],
    layer_type="basic",
)


def _clip(library: Any) -> nn.Module:
    text = {**SMALL, "projection_dim": 16}
    seen = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    model = library.CLIPModel(
        library.CLIPConfig(
            text_config=text, vision_config={**seen, "image_size": 32, "patch_size": 8}, projection_dim=16
        )
    )
    words = torch.arange(16).view(2, 8) + 3
    words[:, -1] = 2

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.clip = model
            self.register_buffer("words", words)

        def forward(self, x: Tensor) -> Any:
            return self.clip(input_ids=self.words, pixel_values=x, return_loss=True)

    return Both()


PUBLISHED["clip"] = Published("transformers", _clip, Pictures(), outputs_loss)


def _whisper(library: Any) -> nn.Module:
    model = library.WhisperForConditionalGeneration(
        library.WhisperConfig(
            **{
                **BART,
                "vocab_size": VOCABULARY,
                "num_mel_bins": 8,
                "max_source_positions": 16,
                "max_target_positions": 32,
                "pad_token_id": 0,
                "bos_token_id": 1,
                "eos_token_id": 2,
            }
        )
    )
    return Asked(
        model, lambda m, x: m(input_features=x.float().view(-1, 8, 32) / 50 - 1, labels=x[:, :LENGTH])
    )


PUBLISHED["whisper"] = Published("transformers", _whisper, Tokens(256), outputs_loss)


def _patch_tst(library: Any) -> nn.Module:
    model = library.PatchTSTForPrediction(
        library.PatchTSTConfig(
            num_input_channels=2,
            context_length=32,
            prediction_length=8,
            patch_length=4,
            patch_stride=4,
            d_model=16,
            num_attention_heads=2,
            num_hidden_layers=1,
            ffn_dim=24,
        )
    )
    return Asked(
        model,
        lambda m, x: m(past_values=(y := x.float().view(-1, 40, 2) / 50)[:, :32], future_values=y[:, 32:]),
    )


PUBLISHED["patch_tst"] = Published("transformers", _patch_tst, Tokens(80), outputs_loss)


def _lora(library: Any) -> nn.Module:
    transformers = importlib.import_module("transformers")
    base = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL, **GROUPED))
    config = library.LoraConfig(
        task_type="CAUSAL_LM", r=4, target_modules=["q_proj", "v_proj"], lora_dropout=0.1
    )
    return Asked(library.get_peft_model(base, config), _labelled)


PUBLISHED["peft_lora"] = Published("peft", _lora, Tokens(), outputs_loss)


# torchvision


def seen(
    name: str,
    build: Callable[[Any], nn.Module],
    *,
    side: int = 32,
    rows: int = 4,
    loss: Any = logits_loss,
    dense: bool = False,
) -> None:
    PUBLISHED[f"tv_{name}"] = Published(
        "torchvision", lambda tv: build(_models(tv)), Pictures(side, dense), loss, rows
    )


def _models(torchvision: Any) -> Any:
    return importlib.import_module("torchvision.models")


def simply(name: str, *, side: int = 32, **given: Any) -> None:
    seen(name, lambda m: getattr(m, name)(num_classes=CLASSES, **given), side=side)


simply("alexnet", side=64)
seen(
    "vgg",
    lambda m: nn.Sequential(
        m.vgg11(num_classes=CLASSES).features[:8],
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(256, CLASSES),
    ),
)
seen("resnet", lambda m: m.ResNet(m.resnet.BasicBlock, [1, 1, 1, 1], CLASSES))
seen("resnext", lambda m: m.ResNet(m.resnet.Bottleneck, [1, 1, 1, 1], CLASSES, groups=8, width_per_group=4))
seen("densenet", lambda m: m.DenseNet(8, (2, 2, 2, 2), 16, num_classes=CLASSES))
seen("googlenet", lambda m: m.GoogLeNet(CLASSES, aux_logits=False, init_weights=False), side=64)
seen("inception", lambda m: m.Inception3(CLASSES, aux_logits=False, init_weights=False), side=96)
seen(
    "mobilenet_v2",
    lambda m: m.MobileNetV2(CLASSES, 0.25, [[1, 16, 1, 1], [6, 24, 2, 2], [6, 32, 2, 2]]),
    side=64,
)
simply("mobilenet_v3_small", side=64)
seen("shufflenet", lambda m: m.ShuffleNetV2([2, 2, 2], [8, 16, 24, 32, 64], CLASSES), side=64)
simply("squeezenet1_1", side=64)
simply("mnasnet0_5", side=64)


def _efficient(m: Any, **given: Any) -> nn.Module:
    of = importlib.import_module("torchvision.models.efficientnet")
    settings = [
        of.MBConvConfig(1, 3, 1, 16, 8, 1),
        of.MBConvConfig(6, 3, 2, 8, 16, 2),
        of.MBConvConfig(6, 5, 2, 16, 24, 2),
    ]
    return m.EfficientNet(settings, 0.2, num_classes=CLASSES, last_channel=64)


seen("efficientnet", _efficient)


def _efficient_v2(m: Any) -> nn.Module:
    of = importlib.import_module("torchvision.models.efficientnet")
    settings = [
        of.FusedMBConvConfig(1, 3, 1, 16, 8, 1),
        of.FusedMBConvConfig(4, 3, 2, 8, 16, 2),
        of.MBConvConfig(4, 3, 2, 16, 24, 2),
    ]
    return m.EfficientNet(settings, 0.2, num_classes=CLASSES, last_channel=64)


seen("efficientnet_v2", _efficient_v2)


def _regnet(m: Any) -> nn.Module:
    of = importlib.import_module("torchvision.models.regnet")
    return m.RegNet(
        of.BlockParams([1, 1, 2, 1], [8, 16, 24, 32], [8, 8, 8, 8], [1.0] * 4, [2] * 4, 0.25), CLASSES
    )


seen("regnet", _regnet, side=64)


def _convnext(m: Any) -> nn.Module:
    of = importlib.import_module("torchvision.models.convnext")
    return m.ConvNeXt(
        [of.CNBlockConfig(8, 16, 1), of.CNBlockConfig(16, 24, 1), of.CNBlockConfig(24, None, 1)],
        0.1,
        num_classes=CLASSES,
    )


seen("convnext", _convnext)
seen("vit", lambda m: m.VisionTransformer(32, 8, 2, 4, 32, 48, num_classes=CLASSES))
SWIN: dict[str, Any] = {
    "patch_size": [4, 4],
    "embed_dim": 16,
    "depths": [2, 2],
    "num_heads": [2, 4],
    "window_size": [4, 4],
    "num_classes": CLASSES,
}
seen("swin", lambda m: m.SwinTransformer(**SWIN, stochastic_depth_prob=0.2))


def _swin_v2(m: Any) -> nn.Module:
    of = importlib.import_module("torchvision.models.swin_transformer")
    return m.SwinTransformer(
        **SWIN, stochastic_depth_prob=0.2, block=of.SwinTransformerBlockV2, downsample_layer=of.PatchMergingV2
    )


seen("swin_v2", _swin_v2)
seen("maxvit", lambda m: m.MaxVit((32, 32), 8, 4, [8, 16], [1, 1], 8, 0.2, num_classes=CLASSES))


def _segmenter(m: Any, head: str) -> nn.Module:
    of = importlib.import_module(f"torchvision.models.segmentation.{head}")
    trunk = m.ResNet(
        m.resnet.Bottleneck, [1, 1, 1, 1], CLASSES, replace_stride_with_dilation=[False, True, True]
    )
    body = m._utils.IntermediateLayerGetter(trunk, {"layer4": "out"})
    if head == "fcn":
        return of.FCN(body, of.FCNHead(2048, CLASSES))
    return of.DeepLabV3(body, of.DeepLabHead(2048, CLASSES, (2, 4)))


seen("fcn", lambda m: _segmenter(m, "fcn"), dense=True, rows=2)
seen("deeplab", lambda m: _segmenter(m, "deeplabv3"), dense=True, rows=2)
seen(
    "lraspp",
    lambda m: m.segmentation.lraspp_mobilenet_v3_large(
        weights=None, weights_backbone=None, num_classes=CLASSES
    ),
    dense=True,
    rows=2,
    side=64,
)


# timm


def timm(name: str, *, side: int = 32, chaotic: bool = False, **given: Any) -> None:
    def build(library: Any) -> nn.Module:
        return library.create_model(name, num_classes=CLASSES, **given)

    PUBLISHED[f"timm_{name}"] = Published("timm", build, Pictures(side), logits_loss, 4, chaotic)


def _of_rows(block: str, library: Any) -> nn.Module:
    of = importlib.import_module("timm.models.mlp_mixer")
    given = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "num_blocks": 2, "num_classes": CLASSES}
    given |= {} if block == "MixerBlock" else {"mlp_ratio": 4}
    return of.MlpMixer(block_layer=getattr(of, block), **given)


PATCHED: dict[str, Any] = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 4}
timm("vit_tiny_patch16_224", **PATCHED)
timm("deit_tiny_distilled_patch16_224", **PATCHED)
timm("beit_base_patch16_224", **PATCHED)
timm("eva02_tiny_patch14_224", **PATCHED)
timm("cait_xxs24_224", **PATCHED)
timm("xcit_nano_12_p16_224", **{**PATCHED, "patch_size": 16})
for _name, _block in (("mixer", "MixerBlock"), ("resmlp", "ResBlock")):
    PUBLISHED[f"timm_{_name}"] = Published("timm", partial(_of_rows, _block), Pictures(), logits_loss, 4)
timm("resnet10t", side=64)
timm("resnest14d", side=64)
timm("convnext_atto", dims=(8, 16, 24, 32), depths=(1, 1, 1, 1), side=64)
timm("convnextv2_atto", dims=(8, 16, 24, 32), depths=(1, 1, 1, 1), side=64)
timm("ghostnet_050", side=64, chaotic=True)
timm("edgenext_xx_small", dims=(8, 16, 32, 48), depths=(1, 1, 2, 1), side=64)
timm("davit_tiny", embed_dims=(16, 32), depths=(1, 1), num_heads=(2, 4), window_size=4)
timm("efficientnet_lite0", side=64)
timm("mobilenetv3_small_050", side=64)
timm("mobilevit_xxs", side=64)
timm("regnetx_002", side=64)
timm("levit_128s", side=224)
timm("dla34", side=64)
timm("dm_nfnet_f0", side=64)
timm("nf_resnet26", side=64)
timm(
    "swin_tiny_patch4_window7_224",
    img_size=32,
    patch_size=4,
    embed_dim=16,
    depths=(2, 2),
    num_heads=(2, 4),
    window_size=4,
)
timm(
    "swinv2_tiny_window8_256",
    img_size=32,
    patch_size=4,
    embed_dim=16,
    depths=(2, 2),
    num_heads=(2, 4),
    window_size=4,
)
timm(
    "coatnet_pico_rw_224",
    img_size=64,
    side=64,
    depths=(1, 1, 1, 1),
    embed_dim=(32, 32, 64, 64),
    stem_width=(8, 16),
)
timm("pvt_v2_b0", side=64)
timm("fastvit_t8", side=64)
timm("repvgg_a0", side=64)
timm("rexnet_100", side=64)


# diffusers


def _unet(library: Any) -> nn.Module:
    model = library.UNet2DModel(
        32,
        3,
        3,
        block_out_channels=(8, 16),
        layers_per_block=1,
        norm_num_groups=4,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=8,
    )
    return Asked(model, lambda m, x: m(x, torch.arange(x.shape[0]) * 100))


def _conditioned(library: Any) -> nn.Module:
    model = library.UNet2DConditionModel(
        32,
        3,
        3,
        block_out_channels=(8, 16),
        layers_per_block=1,
        norm_num_groups=4,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=8,
        attention_head_dim=4,
    )
    return Asked(model, lambda m, x: m(x, torch.arange(x.shape[0]) * 100, x[:, 0, :4, :8]))


def _dit(library: Any) -> nn.Module:
    model = library.DiTTransformer2DModel(
        num_attention_heads=2,
        attention_head_dim=8,
        in_channels=3,
        out_channels=3,
        num_layers=2,
        sample_size=32,
        patch_size=4,
        num_embeds_ada_norm=1000,
    )

    def ask(m: Any, x: Tensor) -> Any:
        steps = torch.arange(x.shape[0]) * 100
        return m(x, timestep=steps, class_labels=steps // 100)

    return Asked(model, ask)


def _vae(library: Any) -> nn.Module:
    return library.AutoencoderKL(
        3, 3, ("DownEncoderBlock2D",) * 2, ("UpDecoderBlock2D",) * 2, (8, 16), norm_num_groups=4
    )


PUBLISHED["unet"] = Published("diffusers", _unet, Pictures(), square_loss)
PUBLISHED["unet_conditioned"] = Published("diffusers", _conditioned, Pictures(), square_loss)
PUBLISHED["dit"] = Published("diffusers", _dit, Pictures(), square_loss)
PUBLISHED["vae"] = Published("diffusers", _vae, Pictures(), square_loss)
