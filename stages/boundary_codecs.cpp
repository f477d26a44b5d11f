#include "stages/boundary_codecs.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "framework/codec/raw.h"
#include "framework/codec/sample_decoder.h"
#include "kernels/random_key.h"

namespace strait::stages {
namespace {

using Codec = DirectionOptions::Codec;

// `automatic` never begins to remember where no sample comes back.
bool remembers_activations(const BoundaryOptions& options, const BoundarySetting& setting) {
  return options.cache_bytes + options.cache_disk_bytes > 0 &&
         (options.forward.codec == Codec::delta ||
          (options.forward.codec == Codec::automatic && setting.samples_return));
}

codec::ChoiceLimits choice_limits(const DirectionOptions& options, bool remembers) {
  // Values without a base are whole activations; below four bits they are not what a user who
  // allowed few bits for changes has in mind.
  constexpr int kLeastOfWholeValues = 4;
  codec::ChoiceLimits limits;
  limits.least_bits = options.bits;
  limits.first_bits = options.first_bits;
  limits.fixed_bits = remembers ? std::max(options.bits, kLeastOfWholeValues) : options.bits;
  limits.remembers = remembers;
  limits.group = options.group;
  return limits;
}

codec::Choice choice_of(const DirectionOptions& options, const codec::ChoiceLimits& limits) {
  using Way = codec::Choice::Way;
  switch (options.codec) {
    case Codec::delta:
      return {Way::delta, options.bits, options.first_bits};
    case Codec::automatic:
      return codec::first_choice(limits);
    case Codec::fixed:
    case Codec::raw:
      break;
  }
  return {Way::fixed, options.bits, options.first_bits};
}

std::unique_ptr<codec::ActivationCache> make_cache(const BoundaryOptions& options,
                                                   const BoundarySetting& setting) {
  if (!remembers_activations(options, setting)) return nullptr;
  codec::ActivationCacheOptions cache;
  cache.kind = options.cache_kind;
  cache.row_tokens = setting.row_tokens;
  cache.width = setting.width;
  cache.memory_bytes = options.cache_bytes;
  cache.disk_bytes = options.cache_disk_bytes;
  std::string file = cache_prefix(options, setting);
  std::ranges::replace(file, '/', '-');
  cache.disk_file = options.cache_folder / (file + "entries");
  cache.order = setting.order;
  cache.last = setting.last;
  return std::make_unique<codec::ActivationCache>(std::move(cache));
}

std::unique_ptr<codec::Encoder> make_encoder(const DirectionOptions& direction,
                                             const BoundaryOptions& options,
                                             const BoundarySetting& setting,
                                             std::unique_ptr<codec::ActivationCache> cache) {
  if (direction.codec == Codec::raw) return std::make_unique<codec::RawEncoder>(setting.wire);
  codec::SampleEncoderOptions encoder;
  const codec::ChoiceLimits limits = choice_limits(direction, cache != nullptr);
  encoder.choice = choice_of(direction, limits);
  encoder.group = direction.group;
  encoder.rotate = direction.rotate;
  encoder.rounding = direction.rounding;
  encoder.key = kernels::mix_key({setting.seed, kernels::hash_name("boundary"),
                                  static_cast<std::uint64_t>(options.upper_stage),
                                  static_cast<std::uint64_t>(setting.replica),
                                  static_cast<std::uint64_t>(setting.side)});
  if (direction.codec == Codec::automatic && setting.chooser) {
    encoder.choose = setting.chooser(limits);
  }
  return std::make_unique<codec::SampleEncoder>(encoder, std::move(cache));
}

std::unique_ptr<codec::Decoder> make_decoder(const DirectionOptions& direction,
                                             const BoundarySetting& setting,
                                             std::unique_ptr<codec::ActivationCache> cache) {
  if (direction.codec == Codec::raw) {
    return std::make_unique<codec::RawDecoder>(setting.wire, setting.dtype);
  }
  return std::make_unique<codec::SampleDecoder>(setting.dtype, std::move(cache));
}

}  // namespace

std::string cache_prefix(const BoundaryOptions& options, const BoundarySetting& setting) {
  return fmt::format("cache/boundary-{}/{}/{}/", options.upper_stage, setting.replica,
                     setting.side == BoundarySide::sender ? "sent" : "received");
}

BoundaryCodecs make_codecs(const BoundaryOptions& options, const BoundarySetting& setting) {
  BoundaryCodecs made;
  std::unique_ptr<codec::ActivationCache> cache = make_cache(options, setting);
  made.cache = cache.get();
  if (setting.side == BoundarySide::sender) {
    made.encoder = make_encoder(options.forward, options, setting, std::move(cache));
    made.decoder = make_decoder(options.backward, setting, nullptr);
  } else {
    made.encoder = make_encoder(options.backward, options, setting, nullptr);
    made.decoder = make_decoder(options.forward, setting, std::move(cache));
  }
  made.evaluation_encoder = std::make_unique<codec::RawEncoder>(setting.evaluation_wire);
  made.evaluation_decoder =
      std::make_unique<codec::RawDecoder>(setting.evaluation_wire, setting.dtype);
  return made;
}

}  // namespace strait::stages
