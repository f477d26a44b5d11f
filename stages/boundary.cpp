#include "stages/boundary.h"

#include <c10/util/Exception.h>

#include <iterator>

namespace strait::stages {
namespace {

using codec::Direction;

}  // namespace

std::vector<BoundaryTraffic> difference(std::span<const BoundaryTraffic> after,
                                        std::span<const BoundaryTraffic> before) {
  TORCH_INTERNAL_ASSERT(after.size() == before.size(), "readings of different ends");
  std::vector<BoundaryTraffic> shares(after.begin(), after.end());
  for (std::size_t i = 0; i < shares.size(); ++i) {
    shares[i].traffic = after[i].traffic.since(before[i].traffic);
  }
  return shares;
}

Boundary::Boundary(BoundaryOptions options, BoundarySetting setting)
    : options_(std::move(options)), setting_(std::move(setting)) {
  // make_codecs() calls this if a direction is `auto`. The encoder calls the result only when it
  // sends. By then connect() has made the chooser, which needs the link.
  setting_.chooser = [this](const codec::ChoiceLimits& limits) {
    limits_ = limits;
    return [this](store::Step step, const codec::Traffic& traffic) {
      return chooser_->choose(step, traffic);
    };
  };
  codecs_ = make_codecs(options_, setting_);
  caches_ = codecs_.caches;
}

BoundaryEnd& Boundary::connect(std::unique_ptr<net::Link> link, WaitClock& waits, std::string peer,
                               trace::SpanLog* spans) {
  if (limits_) chooser_ = std::make_unique<CodecChooser>(*limits_, *link, waits);
  BoundarySpans recorded;
  if (spans != nullptr) {
    const auto number = setting_.replica * options_.boundaries + options_.position;
    recorded = BoundarySpans(
        *spans, {options_.name, static_cast<std::uint64_t>(number), sends() == Direction::forward});
  }
  end_ = std::make_unique<BoundaryEnd>(std::move(link), std::move(codecs_), waits, std::move(peer),
                                       setting_.device, std::chrono::seconds(30), recorded);
  return *end_;
}

std::vector<tensors::NamedTensor> Boundary::saved_cache() const {
  std::vector<tensors::NamedTensor> saved;
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    const codec::ActivationCache* cache = caches_.at(static_cast<std::size_t>(direction));
    if (cache == nullptr) continue;
    std::ranges::move(cache->saved(cache_prefix(options_, setting_, direction)),
                      std::back_inserter(saved));
  }
  return saved;
}

std::vector<Boundary::CacheSnapshot> Boundary::cache_snapshots(store::Step steps) {
  std::vector<CacheSnapshot> taken;
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    codec::ActivationCache* cache = caches_.at(static_cast<std::size_t>(direction));
    if (cache == nullptr) continue;
    taken.emplace_back(cache_prefix(options_, setting_, direction), cache->snapshot(steps));
  }
  return taken;
}

void Boundary::restore_cache(const ReadTensor& read, const HasTensor& has) {
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    codec::ActivationCache* cache = caches_.at(static_cast<std::size_t>(direction));
    if (cache == nullptr) continue;
    const std::string prefix = cache_prefix(options_, setting_, direction);
    // In a run of one epoch `auto` has saved none, at either end.
    if (has(prefix + codec::ActivationCache::kLayout)) cache->restore(prefix, read);
  }
}

Direction Boundary::sends() const {
  return setting_.side == BoundarySide::sender ? Direction::forward : Direction::backward;
}

BoundaryTraffic Boundary::sent() const { return {options_.name, sends(), true, end_->sent()}; }

BoundaryTraffic Boundary::received() const {
  const Direction direction =
      sends() == Direction::forward ? Direction::backward : Direction::forward;
  return {options_.name, direction, false, end_->received()};
}

std::vector<CodecDecision> Boundary::take_decisions() {
  std::vector<CodecDecision> decisions;
  if (chooser_ == nullptr) return decisions;
  for (CodecChooser::Made& made : chooser_->take_decisions()) {
    decisions.push_back({options_.name, sends(), std::move(made)});
  }
  return decisions;
}

}  // namespace strait::stages
