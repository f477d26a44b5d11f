#include "framework/sync/sync_rounds.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace strait::sync {
namespace {

using Clock = std::chrono::steady_clock;

const net::LinkError kLeaving(net::LinkError::Kind::aborted,
                              "the replica left in the middle of a sync round");

store::Step step_before(store::Step step) {
  return static_cast<store::Step>(store::number(step) - 1);
}

}  // namespace

SyncRounds::SyncRounds(std::unique_ptr<SyncMethod> method, Slots& slots, Membership membership,
                       std::vector<std::unique_ptr<net::Link>> links)
    : method_(std::move(method)),
      slots_(slots),
      membership_(std::move(membership)),
      links_(std::move(links)),
      thread_([this] { exchange_rounds(); }) {}

SyncRounds::~SyncRounds() {
  bool under_way = false;
  {
    const MutexLock lock(mutex_);
    closing_ = true;
    under_way = !exchanged_;
  }
  changed_.notify_all();
  if (under_way) links_.abort(kLeaving);
  thread_.join();
}

void SyncRounds::gradient_begins(store::Step step) {
  {
    const MutexLock lock(mutex_);
    all_ready_ = false;
    ready_.clear();
  }
  open({step, Hook::gradient});
}

void SyncRounds::gradient_ready(Range range) {
  {
    const MutexLock lock(mutex_);
    ready_.push_back(range);
  }
  changed_.notify_all();
}

void SyncRounds::gradient_whole(store::Step step) {
  {
    const MutexLock lock(mutex_);
    all_ready_ = true;
  }
  changed_.notify_all();
  if (round_ && round_->opened.step == step && round_->opened.hook == Hook::gradient) land();
}

void SyncRounds::gradient_clipped(store::Step step) { open_and_land({step, Hook::clipped}); }

void SyncRounds::before_update(store::Step step) {
  if (!round_) return;
  if (store::number(round_->opened.step) + round_->plan.late <= store::number(step)) return land();
  finish_reading();
}

void SyncRounds::updated(store::Step step, bool leaving) {
  const Moment moment{step, Hook::update};
  const auto planned = method_->plan(moment, slots_.layout(), membership_);
  if (!planned) return;
  if (planned->late == 0) return open_and_land(moment);
  if (!leaving) open(moment);
}

void SyncRounds::before_look(store::Step steps) {
  if (round_ && round_->opened.step < step_before(steps)) land();
  if (round_) finish_reading();
  if (!round_) open_and_land({steps, Hook::look});
}

void SyncRounds::go_on(store::Step next) {
  if (store::number(next) == 0) return;
  const Moment moment{step_before(next), Hook::update};
  const auto planned = method_->plan(moment, slots_.layout(), membership_);
  if (planned && planned->late > 0) open(moment);
}

void SyncRounds::open_and_land(const Moment& moment) {
  open(moment);
  if (round_) land();
}

void SyncRounds::open(const Moment& moment) {
  auto plan = method_->plan(moment, slots_.layout(), membership_);
  if (!plan) return;
  if (round_) throw std::logic_error("sync method " + method_->name() + " opens a second round");
  round_.emplace();
  round_->id = opened_++;
  round_->opened = moment;
  round_->plan = std::move(*plan);
  round_->membership = membership_;
  round_->parts = parts_of(round_->plan, membership_);
  {
    const MutexLock lock(mutex_);
    requested_ = true;
    read_ = false;
    exchanged_ = false;
    opened_at_ = Clock::now();
  }
  changed_.notify_all();
}

void SyncRounds::finish_reading() {
  const MutexLock lock(mutex_);
  while (!read_ && error_ == nullptr) changed_.wait(mutex_);
  if (error_ != nullptr) std::rethrow_exception(error_);
}

void SyncRounds::land() {
  {
    const MutexLock lock(mutex_);
    while (!exchanged_ && error_ == nullptr) changed_.wait(mutex_);
    if (error_ != nullptr) std::rethrow_exception(error_);
    ++traffic_.rounds;
  }
  method_->land(*round_, slots_);
  round_.reset();
}

bool SyncRounds::ready(Range range) const {
  if (all_ready_) return true;
  // Padding is nobody's and never told to be ready.
  for (const Piece& piece : slots_.layout().pieces()) {
    const Range wanted{std::max(range.first, piece.range.first),
                       std::min(range.last, piece.range.last)};
    if (wanted.count() <= 0) continue;
    const bool there = std::any_of(ready_.begin(), ready_.end(), [&](const Range& got) {
      return got.first <= wanted.first && wanted.last <= got.last;
    });
    if (!there) return false;
  }
  return true;
}

void SyncRounds::wait_until_ready(Range range) {
  const MutexLock lock(mutex_);
  while (!closing_ && !ready(range)) changed_.wait(mutex_);
  if (closing_) throw kLeaving;
}

void SyncRounds::exchange_rounds() {
  while (true) {
    {
      const MutexLock lock(mutex_);
      while (!closing_ && !requested_) changed_.wait(mutex_);
      if (closing_) return;
      requested_ = false;
    }
    exchange_one();
  }
}

void SyncRounds::exchange_one() {
  std::exception_ptr error;
  try {
    const ExchangeHooks hooks{[this](Range range) { wait_until_ready(range); },
                              [this] {
                                {
                                  const MutexLock lock(mutex_);
                                  read_ = true;
                                }
                                changed_.notify_all();
                              }};
    run_exchange(*round_, *method_, slots_, links_, hooks);
  } catch (const std::exception&) {
    error = std::current_exception();
  }
  {
    const MutexLock lock(mutex_);
    error_ = error;
    exchanged_ = true;
    traffic_.round_seconds += std::chrono::duration<double>(Clock::now() - opened_at_).count();
  }
  changed_.notify_all();
}

SyncTraffic SyncRounds::traffic() const {
  SyncTraffic traffic;
  {
    const MutexLock lock(mutex_);
    traffic = traffic_;
  }
  traffic.sent_bytes = links_.sent_bytes();
  return traffic;
}

}  // namespace strait::sync
