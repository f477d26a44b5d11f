#include "framework/sync/sync_rounds.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "framework/sync/sync_error.h"

namespace strait::sync {
namespace {

using Clock = std::chrono::steady_clock;

// How often the links are emptied while nobody knows yet who goes on.
constexpr std::chrono::milliseconds kTakeIn{20};

const net::LinkError kLeaving(net::LinkError::Kind::aborted,
                              "the replica left in the middle of a sync round");

store::Step step_before(store::Step step) {
  return static_cast<store::Step>(store::number(step) - 1);
}

}  // namespace

SyncRounds::SyncRounds(std::unique_ptr<SyncMethod> method, Slots& slots, Membership membership,
                       std::vector<std::unique_ptr<net::Link>> links, Roster* roster)
    : method_(std::move(method)),
      slots_(slots),
      membership_(std::move(membership)),
      roster_(roster),
      links_(std::move(links), membership_, roster),
      thread_([this] { exchange_rounds(); }) {}

SyncRounds::~SyncRounds() {
  bool unfinished = false;
  {
    const MutexLock lock(mutex_);
    closing_ = true;
    unfinished = !exchanged_ || error_ != nullptr;
  }
  changed_.notify_all();
  if (unfinished) links_.abort(kLeaving);
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

bool SyncRounds::gradient_whole(store::Step step) {
  {
    const MutexLock lock(mutex_);
    all_ready_ = true;
  }
  changed_.notify_all();
  if (!round_ || round_->opened.step != step || round_->opened.hook != Hook::gradient) return true;
  if (!held()) return false;
  before_landing_.take(slots_, roster_ != nullptr);
  landed_at_ = round_->opened;
  landed_ = round_->id;
  land();
  return true;
}

bool SyncRounds::due(store::Step step) const {
  return round_ && store::number(round_->opened.step) + round_->plan.late <= store::number(step);
}

bool SyncRounds::holds(store::Step step) { return !due(step) || held(); }

bool SyncRounds::holds_for_look(store::Step steps) {
  return !round_ || round_->opened.step >= step_before(steps) || held();
}

bool SyncRounds::holds_now() { return !round_ || held(); }

bool SyncRounds::held() {
  asked_for_ = true;
  const MutexLock lock(mutex_);
  while (!exchanged_ && error_ == nullptr) changed_.wait(mutex_);
  if (error_ != nullptr) std::rethrow_exception(error_);
  return !parted_;
}

void SyncRounds::regroup(const Membership& membership, bool passed) {
  membership_ = membership;
  if (passed && (asked_for_ || before_landing_.there())) return;
  Moment moment = landed_at_;
  std::uint64_t id = landed_;
  if (before_landing_.there()) {
    before_landing_.give_back(slots_);
    const MutexLock lock(mutex_);
    --traffic_.rounds;
    traffic_.round_seconds -= round_seconds_;
  } else if (round_) {
    held();
    method_->drop(*round_);
    moment = round_->opened;
    id = round_->id;
    round_.reset();
  } else {
    return;
  }
  {
    const MutexLock lock(mutex_);
    ++traffic_.dropped;
  }
  open(moment, id);
}

void SyncRounds::welcome(const Membership& membership, store::Step next) {
  if (round_) {
    held();
    method_->drop(*round_);
    round_.reset();
  }
  asked_for_ = false;
  membership_ = membership;
  opened_ = 0;  // as whoever is new counts
  go_on(next);
}

void SyncRounds::gradient_clipped(store::Step step) {
  before_landing_.forget();
  open_and_land({step, Hook::clipped});
}

void SyncRounds::before_update(store::Step step) {
  // Nobody clipped it, so the step is skipped.
  if (before_landing_.there()) before_landing_.give_back(slots_);
  if (!round_) return;
  if (due(step)) return land();
  finish_reading();
}

bool SyncRounds::updated(store::Step step, bool leaving) {
  const Moment moment{step, Hook::update};
  const auto planned = method_->plan(moment, slots_.layout(), membership_);
  if (!planned) return false;
  const bool at_once = planned->late == 0;
  if (at_once || !leaving) open(moment);
  if (at_once && roster_ == nullptr) land();
  return at_once && roster_ != nullptr;
}

void SyncRounds::land_now() {
  if (round_) land();
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
  // Not what is under way since before, and is not due yet.
  if (open(moment)) land();
}

bool SyncRounds::open(const Moment& moment, std::optional<std::uint64_t> again) {
  auto plan = method_->plan(moment, slots_.layout(), membership_);
  if (!plan) return false;
  if (round_) throw std::logic_error("sync method " + method_->name() + " opens a second round");
  if (plan->late > 1 && method_->agrees() && method_->model_slot() == kWeights) {
    throw std::logic_error("sync method " + method_->name() +
                           " trains on the model that its members compare");
  }
  round_.emplace();
  round_->id = again ? *again : opened_++;
  round_->opened = moment;
  asked_for_ = false;
  round_->plan = std::move(*plan);
  round_->membership = membership_;
  round_->parts = parts_of(round_->plan, membership_);
  {
    const MutexLock lock(mutex_);
    requested_ = true;
    read_ = false;
    exchanged_ = false;
    parted_ = false;
    opened_at_ = Clock::now();
  }
  changed_.notify_all();
  return true;
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
    if (parted_) {
      throw std::logic_error("sync method " + method_->name() +
                             " lands a round where replicas cannot agree on who is left");
    }
    ++traffic_.rounds;
    traffic_.round_seconds += round_seconds_;
  }
  method_->land(*round_, slots_);
  round_.reset();
  asked_for_ = false;
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
    bool parted = false;
    {
      const MutexLock lock(mutex_);
      while (!closing_ && (error_ != nullptr || (!requested_ && !parted_))) changed_.wait(mutex_);
      if (parted_ && !requested_) changed_.wait_until(mutex_, Clock::now() + kTakeIn);
      if (closing_) return;
      parted = !requested_;
      requested_ = false;
    }
    if (parted)
      take_in();
    else
      exchange_one();
  }
}

// Members that have not heard of it yet may wait for room at our end.
void SyncRounds::take_in() {
  try {
    links_.take_in();
  } catch (const std::exception&) {
    {
      const MutexLock lock(mutex_);
      error_ = std::current_exception();
    }
    changed_.notify_all();
  }
}

void SyncRounds::exchange_one() {
  std::exception_ptr error;
  bool parted = false;
  try {
    links_.regroup(round_->membership);
    // Others tell what stands still already, while the next step's gradient comes in.
    const bool of_gradient = round_->opened.hook == Hook::gradient;
    const ExchangeHooks hooks{[this, of_gradient](Range range) {
                                if (of_gradient) wait_until_ready(range);
                              },
                              [this] {
                                {
                                  const MutexLock lock(mutex_);
                                  read_ = true;
                                }
                                changed_.notify_all();
                              }};
    run_exchange(*round_, *method_, slots_, links_, hooks);
  } catch (const SyncError& thrown) {
    parted = thrown.kind() == SyncError::Kind::parted;
    if (!parted) error = std::current_exception();
  } catch (const std::exception&) {
    error = std::current_exception();
  }
  {
    const MutexLock lock(mutex_);
    error_ = error;
    exchanged_ = true;
    read_ = read_ || parted;
    parted_ = parted;
    round_seconds_ = std::chrono::duration<double>(Clock::now() - opened_at_).count();
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
