#include "stages/boundary_codecs.h"

#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>

#include "framework/codec/raw.h"
#include "kernels/gpu_rows.h"
#include "kernels/random.h"

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
  cache.row_tokens = setting.limits.row_tokens / setting.slices;
  cache.width = setting.limits.width;
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
  made.limits = setting.limits;
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

CodecChooser::CodecChooser(const codec::ChoiceLimits& limits, const net::Link& link,
                           const WaitClock& waits)
    : limits_(limits), link_(link), waits_(waits), now_(codec::first_choice(limits)) {}

codec::Choice CodecChooser::now() const {
  const MutexLock lock(mutex_);
  return now_;
}

std::vector<CodecChooser::Made> CodecChooser::take_decisions() {
  const MutexLock lock(mutex_);
  return std::exchange(decisions_, {});
}

codec::Measured CodecChooser::measure(const Sample& before, const Sample& after) const {
  // Averages per step between the two samples.
  const auto steps = static_cast<double>(number(after.step) - number(before.step));
  codec::Measured measured;
  measured.bytes_per_second = link_.state().bytes_per_second;
  measured.compute_seconds = (after.busy - before.busy) / steps;
  const codec::Traffic sent = after.traffic.since(before.traffic);
  // raw_bytes counts four bytes a value.
  measured.values_per_step = static_cast<double>(sent.raw_bytes) / 4 / steps;
  measured.messages_per_step = std::max(1.0, static_cast<double>(sent.messages) / steps);
  if (sent.changed_value_squares > 0) {
    measured.change = std::sqrt(sent.change_squares / sent.changed_value_squares);
  }
  if (sent.noise_squares > 0) {
    codec::GradientMeasure gradient;
    gradient.noise = sent.noise_squares / steps;
    gradient.signal = sent.signal_squares / steps;
    gradient.values = sent.gradient_squares / steps;
    if (sent.value_squares > 0) {
      gradient.error = std::sqrt(sent.error_squares / sent.value_squares);
    }
    if (sent.compared_squares > 0) gradient.bias = 1 - sent.kept_squares / sent.compared_squares;
    measured.gradient = gradient;
  }
  return measured;
}

codec::Choice CodecChooser::choose(store::Step step, const codec::Traffic& traffic) {
  const Sample sample{waits_.read().busy, step, traffic};
  if (!last_) {
    last_ = sample;
    return now();
  }
  if (number(step) - number(last_->step) < kSampleEvery) return now();
  const codec::Measured measured = measure(*std::exchange(last_, sample), sample);
  // The lock is for readers of now_ and decisions_; last_ belongs to this thread.
  const MutexLock lock(mutex_);
  std::optional<codec::Decision> decision = codec::next_choice(limits_, now_, measured);
  // The first decision is reported even if it changes nothing, so that a user sees what `auto`
  // does.
  if (decision && (!std::exchange(decided_, true) || decision->choice != now_)) {
    now_ = decision->choice;
    decisions_.push_back({step, *std::move(decision)});
  }
  return now_;
}

}  // namespace strait::stages
