#include "stages/boundary_codecs.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "framework/codec/raw.h"
#include "kernels/random_key.h"

namespace strait::stages {
namespace {

using Remembers = codec::CodecOffer::Remembers;

const codec::CodecOffer& codec_of(const DirectionOptions& direction) {
  return codec::codecs().named(direction.codec);
}

bool keeps_activations(const BoundaryOptions& options, const BoundarySetting& setting) {
  const Remembers remembers = codec_of(options.forward).remembers;
  return options.cache_bytes + options.cache_disk_bytes > 0 &&
         (remembers == Remembers::samples ||
          (remembers == Remembers::where_samples_return && setting.samples_return));
}

std::unique_ptr<codec::ActivationCache> make_cache(const BoundaryOptions& options,
                                                   const BoundarySetting& setting) {
  if (!keeps_activations(options, setting)) return nullptr;
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

codec::CodecSettings codec_settings(const DirectionOptions& direction,
                                    const BoundaryOptions& options, const BoundarySetting& setting,
                                    bool remembers) {
  codec::CodecSettings settings;
  settings.bits = direction.bits;
  settings.first_bits = direction.first_bits;
  settings.group = direction.group;
  settings.rotate = direction.rotate;
  settings.rounding = direction.rounding;
  settings.wire = setting.wire;
  settings.result = setting.dtype;
  settings.key = kernels::mix_key(
      {setting.seed, kernels::hash_name("boundary"), static_cast<std::uint64_t>(options.place),
       static_cast<std::uint64_t>(setting.replica), static_cast<std::uint64_t>(setting.side)});
  settings.remembers = remembers;
  settings.chooser = setting.chooser;
  return settings;
}

}  // namespace

std::string cache_prefix(const BoundaryOptions& options, const BoundarySetting& setting) {
  return fmt::format("cache/boundary-{}/{}/{}/", options.place, setting.replica,
                     setting.side == BoundarySide::sender ? "sent" : "received");
}

bool remembers_samples(const BoundaryOptions& options) {
  return codec_of(options.forward).remembers != Remembers::nothing;
}

BoundaryCodecs make_codecs(const BoundaryOptions& options, const BoundarySetting& setting) {
  BoundaryCodecs made;
  std::unique_ptr<codec::ActivationCache> cache = make_cache(options, setting);
  made.cache = cache.get();
  const bool down = setting.side == BoundarySide::sender;
  const DirectionOptions& sent = down ? options.forward : options.backward;
  const DirectionOptions& received = down ? options.backward : options.forward;
  const bool remembers = cache != nullptr;
  made.encoder = codec_of(sent).encoder(codec_settings(sent, options, setting, down && remembers),
                                        down ? std::move(cache) : nullptr);
  made.decoder =
      codec_of(received).decoder(codec_settings(received, options, setting, !down && remembers),
                                 down ? nullptr : std::move(cache));
  made.evaluation_encoder = std::make_unique<codec::RawEncoder>(setting.evaluation_wire);
  made.evaluation_decoder =
      std::make_unique<codec::RawDecoder>(setting.evaluation_wire, setting.dtype);
  return made;
}

}  // namespace strait::stages
