#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace strait::recipe {

// The words a recipe chooses from.
enum class Weights : std::uint8_t { load, random };
enum class Dtype : std::uint8_t { float32, bfloat16 };
enum class Device : std::uint8_t { automatic, cpu, cuda };
enum class Recompute : std::uint8_t { none, layer };
enum class PartitionKind : std::uint8_t { balanced, profile, ranges, plugin };
enum class DecayKind : std::uint8_t { cosine, linear, constant };
enum class WireDtype : std::uint8_t { float32, bfloat16, float16 };
enum class RoundingKind : std::uint8_t { nearest, stochastic };
enum class CacheKind : std::uint8_t { bfloat16, eight_bits };
enum class SavedCaches : std::uint8_t { save, drop };
enum class LossRule : std::uint8_t { stop, go_on };  // the word for the latter is "continue"
enum class BackendKind : std::uint8_t { local, ssh, slurm, join };

// The allowed words of an enumeration in the order of its values, whatever the argument's own
// value: all_names(Weights{}) is {"load", "random"}.
using Names = std::span<const std::string_view>;
Names all_names(Weights);
Names all_names(Dtype);
Names all_names(Device);
Names all_names(Recompute);
Names all_names(PartitionKind);
Names all_names(DecayKind);
Names all_names(WireDtype);
Names all_names(RoundingKind);
Names all_names(CacheKind);
Names all_names(SavedCaches);
Names all_names(LossRule);
Names all_names(BackendKind);

template <class Word>
std::string_view name_of(Word word) {
  return all_names(word)[static_cast<std::size_t>(word)];
}

}  // namespace strait::recipe
