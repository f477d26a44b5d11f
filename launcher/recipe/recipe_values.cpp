#include "launcher/recipe/recipe_values.h"

#include <array>

namespace strait::recipe {

namespace {

using std::string_view_literals::operator""sv;

constexpr std::array kWeightsNames = {"load"sv, "random"sv, "run"sv};
constexpr std::array kDtypeNames = {"float32"sv, "bfloat16"sv};
constexpr std::array kDeviceNames = {"auto"sv, "cpu"sv, "cuda"sv};
constexpr std::array kRecomputeNames = {"none"sv, "layer"sv, "offload"sv};
constexpr std::array kQuantizationNames = {"none"sv, "int8"sv, "int4"sv, "nf4"sv};
constexpr std::array kPartitionNames = {"balanced"sv, "profile"sv, "ranges"sv, "plugin"sv};
constexpr std::array kDecayNames = {"cosine"sv, "linear"sv, "constant"sv, "inverse_sqrt"sv};
constexpr std::array kPreferenceNames = {"none"sv, "orpo"sv, "simpo"sv, "dpo"sv, "kto"sv};
constexpr std::array kChatTemplateNames = {"own"sv,     "chatml"sv, "llama3"sv, "gemma"sv,
                                           "mistral"sv, "zephyr"sv, "alpaca"sv};
constexpr std::array kMomentsNames = {"float32"sv, "bfloat16"sv, "int8"sv};
constexpr std::array kOptimizerNames = {"adamw"sv, "muon"sv};
constexpr std::array kOffloadNames = {"none"sv, "optimizer"sv, "disk"sv};
constexpr std::array kWireDtypeNames = {"float32"sv, "bfloat16"sv, "float16"sv};
constexpr std::array kCheckpointHomeNames = {"auto"sv, "all"sv, "weights"sv, "none"sv};
constexpr std::array kLossRuleNames = {"stop"sv, "continue"sv};
constexpr std::array kGroupUseNames = {"auto"sv, "never"sv, "always"sv};
constexpr std::array kBackendNames = {"local"sv, "ssh"sv, "join"sv};
constexpr std::array kTargetsNames = {"assistant"sv, "all"sv, "last"sv};
constexpr std::array kPackingNames = {"first_fit"sv, "decreasing"sv, "single"sv};
constexpr std::array kTooLongNames = {"refuse"sv, "drop"sv, "truncate"sv, "split"sv};

}  // namespace

Names all_names(Weights) { return kWeightsNames; }
Names all_names(Dtype) { return kDtypeNames; }
Names all_names(Device) { return kDeviceNames; }
Names all_names(Recompute) { return kRecomputeNames; }
Names all_names(Quantization) { return kQuantizationNames; }
Names all_names(PartitionKind) { return kPartitionNames; }
Names all_names(DecayKind) { return kDecayNames; }
Names all_names(PreferenceKind) { return kPreferenceNames; }
Names all_names(ChatTemplate) { return kChatTemplateNames; }
Names all_names(Moments) { return kMomentsNames; }
Names all_names(OptimizerKind) { return kOptimizerNames; }
Names all_names(Offload) { return kOffloadNames; }
Names all_names(codec::WireDtype) { return kWireDtypeNames; }
Names all_names(CheckpointHome) { return kCheckpointHomeNames; }
Names all_names(LossRule) { return kLossRuleNames; }
Names all_names(GroupUse) { return kGroupUseNames; }
Names all_names(BackendKind) { return kBackendNames; }
Names all_names(data::Targets) { return kTargetsNames; }
Names all_names(data::TooLong) { return kTooLongNames; }
Names all_names(data::Packing) { return kPackingNames; }

}  // namespace strait::recipe
