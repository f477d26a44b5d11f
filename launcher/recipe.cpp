#include "launcher/recipe.h"

#include <array>

namespace strait::launcher {

namespace {

using std::string_view_literals::operator""sv;

constexpr std::array kWeightsNames = {"load"sv, "random"sv};
constexpr std::array kDtypeNames = {"float32"sv, "bfloat16"sv};
constexpr std::array kDeviceNames = {"auto"sv, "cpu"sv, "cuda"sv};
constexpr std::array kRecomputeNames = {"none"sv, "layer"sv};
constexpr std::array kScheduleNames = {"gpipe"sv, "1f1b"sv};
constexpr std::array kPartitionNames = {"balanced"sv, "profile"sv, "ranges"sv, "plugin"sv};
constexpr std::array kDecayNames = {"cosine"sv, "linear"sv, "constant"sv};
constexpr std::array kCodecNames = {"raw"sv, "fixed"sv, "delta"sv, "auto"sv};
constexpr std::array kWireDtypeNames = {"float32"sv, "bfloat16"sv, "float16"sv};
constexpr std::array kBackendNames = {"local"sv, "ssh"sv, "slurm"sv};

}  // namespace

// clang-format off
template <> std::span<const std::string_view> all_names<Weights>() { return kWeightsNames; }
template <> std::span<const std::string_view> all_names<Dtype>() { return kDtypeNames; }
template <> std::span<const std::string_view> all_names<Device>() { return kDeviceNames; }
template <> std::span<const std::string_view> all_names<Recompute>() { return kRecomputeNames; }
template <> std::span<const std::string_view> all_names<ScheduleKind>() { return kScheduleNames; }
template <> std::span<const std::string_view> all_names<PartitionKind>() { return kPartitionNames; }
template <> std::span<const std::string_view> all_names<DecayKind>() { return kDecayNames; }
template <> std::span<const std::string_view> all_names<CodecKind>() { return kCodecNames; }
template <> std::span<const std::string_view> all_names<WireDtype>() { return kWireDtypeNames; }
template <> std::span<const std::string_view> all_names<BackendKind>() { return kBackendNames; }
// clang-format on

}  // namespace strait::launcher
