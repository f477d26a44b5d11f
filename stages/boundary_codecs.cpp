#include "stages/boundary_codecs.h"

#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "framework/codec/raw.h"
#include "kernels/gpu_rows.h"
#include "kernels/random_key.h"

namespace strait::stages {
namespace {

using Caching = codec::CodecOffer::Caching;
using codec::Direction;

const codec::CodecOffer& codec_of(const BoundaryOptions& options, Direction direction) {
  return codec::codecs().named(options.codec.name(direction));
}

bool keeps_samples(const BoundaryOptions& options, const BoundarySetting& setting,
                   Direction direction) {
  const Caching caching = codec_of(options, direction).caching_of(direction);
  return options.cache.memory_bytes + options.cache.disk_bytes > 0 &&
         (caching == Caching::always ||
          (caching == Caching::if_samples_repeat && setting.samples_return));
}

std::unique_ptr<codec::ActivationCache> make_cache(const BoundaryOptions& options,
                                                   const BoundarySetting& setting,
                                                   Direction direction) {
  const bool keeps = keeps_samples(options, setting, direction);
  if (!keeps && !codec_of(options, direction).has_state) return nullptr;
  codec::ActivationCacheOptions cache;
  cache.row_tokens = setting.row_tokens;
  cache.width = setting.width;
  if (keeps) {
    cache.memory_bytes = static_cast<std::uint64_t>(options.cache.memory_bytes);
    cache.disk_bytes = static_cast<std::uint64_t>(options.cache.disk_bytes);
  }
  std::string file = cache_prefix(options, setting, direction);
  std::ranges::replace(file, '/', '-');
  cache.disk_file = options.cache_folder / (file + "entries");
  // Only entries of activations are used by kernels.
  cache.pinned = direction == Direction::forward && !codec_device(setting.device).is_cpu();
  cache.order = setting.order;
  cache.last = setting.last;
  cache.saved_before = setting.saved_before;
  cache.snapshot_memory = setting.snapshot_memory;
  return std::make_unique<codec::ActivationCache>(std::move(cache));
}

codec::DirectionSettings direction_settings(Direction direction, const BoundaryOptions& options,
                                            const BoundarySetting& setting, bool has_cache) {
  codec::DirectionSettings settings;
  settings.codec = options.codec;
  settings.direction = direction;
  settings.result = setting.dtype;
  // Every end of every boundary of every replica draws its own rounding, so that
  // errors do not add up.
  settings.key = kernels::mix_key(
      {setting.seed, kernels::hash_name("boundary"), static_cast<std::uint64_t>(options.position),
       static_cast<std::uint64_t>(setting.replica), static_cast<std::uint64_t>(setting.side)});
  settings.device = codec_device(setting.device);
  settings.has_cache = has_cache;
  settings.boundaries = options.boundaries;
  settings.chooser = setting.chooser;
  return settings;
}

}  // namespace

at::Device codec_device(at::Device compute) {
  return kernels::gpu_kernels_run_on(compute) ? compute : at::kCPU;
}

std::string cache_prefix(const BoundaryOptions& options, const BoundarySetting& setting,
                         Direction direction) {
  const bool forward = direction == Direction::forward;
  const bool sent = (setting.side == BoundarySide::sender) == forward;
  return fmt::format("cache/boundary-{}/{}/{}{}/", options.position, setting.replica,
                     sent ? "sent" : "received", forward ? "" : "-gradients");
}

bool uses_cache(const BoundaryOptions& options) {
  return std::ranges::any_of(
      std::array{Direction::forward, Direction::backward}, [&](Direction direction) {
        const codec::CodecOffer& offer = codec_of(options, direction);
        return offer.has_state || offer.caching_of(direction) != Caching::none;
      });
}

BoundaryCodecs make_codecs(const BoundaryOptions& options, const BoundarySetting& setting) {
  BoundaryCodecs made;
  made.width = setting.width;
  const bool down = setting.side == BoundarySide::sender;
  const Direction sent = down ? Direction::forward : Direction::backward;
  const Direction received = down ? Direction::backward : Direction::forward;
  // A cache belongs to the codec of its direction.
  const auto cache_of = [&](Direction direction) {
    std::unique_ptr<codec::ActivationCache> cache = make_cache(options, setting, direction);
    made.caches.at(static_cast<std::size_t>(direction)) = cache.get();
    return cache;
  };
  const auto has_cache = [&](Direction direction) {
    return made.caches.at(static_cast<std::size_t>(direction)) != nullptr;
  };
  std::unique_ptr<codec::ActivationCache> sent_cache = cache_of(sent);
  std::unique_ptr<codec::ActivationCache> received_cache = cache_of(received);
  made.encoder = codec_of(options, sent)
                     .encoder(direction_settings(sent, options, setting, has_cache(sent)),
                              std::move(sent_cache));
  made.decoder = codec_of(options, received)
                     .decoder(direction_settings(received, options, setting, has_cache(received)),
                              std::move(received_cache));
  made.evaluation_encoder = std::make_unique<codec::RawEncoder>(setting.evaluation_wire);
  made.evaluation_decoder =
      std::make_unique<codec::RawDecoder>(setting.evaluation_wire, setting.dtype);
  return made;
}

}  // namespace strait::stages
