#include "framework/sync/sync_rounds.h"

#include "framework/sync/sync_error.h"

namespace strait::sync {
namespace {

using Clock = std::chrono::steady_clock;

store::Step step_before(store::Step step) {
  return static_cast<store::Step>(store::number(step) - 1);
}

double seconds_between(Clock::time_point start, Clock::time_point end) {
  return std::chrono::duration<double>(end - start).count();
}

// How often the links are drained while a new membership is being agreed on.
constexpr std::chrono::milliseconds kDrainInterval{20};

}  // namespace

SyncRounds::SyncRounds(std::unique_ptr<SyncMethod> method, Slots& slots, Membership membership,
                       std::vector<std::unique_ptr<net::Link>> links, MembershipTracker* tracker,
                       GroupRounds grouped)
    : method_(std::move(method)),
      slots_(slots),
      membership_(std::move(membership)),
      tracker_(tracker),
      grouped_(std::move(grouped)),
      links_(std::move(links), membership_, tracker),
      thread_([this] { exchange_rounds(); }) {}

SyncRounds::~SyncRounds() {
  bool unfinished = false;
  {
    const MutexLock lock(mutex_);
    closing_ = true;
    unfinished = !exchanged_ || error_ != nullptr;
  }
  changed_.notify_all();
  // Before join(): the thread may wait on a link.
  if (unfinished) links_.abort(leaving());
  thread_.join();
}

void SyncRounds::gradient_begins(store::Step step) {
  {
    const MutexLock lock(mutex_);
    ready_.clear();
  }
  open({step, Hook::gradient});
}

void SyncRounds::gradient_ready(Range range) {
  {
    const MutexLock lock(mutex_);
    ready_.add(range);
  }
  changed_.notify_all();
}

bool SyncRounds::gradient_whole(store::Step step) {
  {
    const MutexLock lock(mutex_);
    ready_.add_all();
  }
  changed_.notify_all();
  if (!round_ || round_->opened.step != step || round_->opened.hook != Hook::gradient) return true;
  if (!wait_for_exchange()) return false;
  // A group's sum is in the gradient's place already, and changes no other slot. Without a tracker
  // a step is never repeated, only skipped; then the gradient is not needed.
  if (round_->plan.pattern != Pattern::group) before_applied_.take(slots_, tracker_ != nullptr);
  applied_at_ = round_->opened;
  applied_ = round_->id;
  apply();
  return true;
}

bool SyncRounds::due(store::Step step) const {
  return round_ && store::number(round_->opened.step) + round_->plan.late <= store::number(step);
}

bool SyncRounds::round_complete(store::Step step) { return !due(step) || wait_for_exchange(); }

bool SyncRounds::round_complete_before_read(store::Step steps) {
  return !round_ || round_->opened.step >= step_before(steps) || wait_for_exchange();
}

bool SyncRounds::round_complete_now() { return !round_ || wait_for_exchange(); }

bool SyncRounds::wait_for_exchange() {
  // From here on this replica may have reported that it holds the round; see regroup().
  asked_for_ = true;
  const MutexLock lock(mutex_);
  while (!exchanged_ && error_ == nullptr) changed_.wait(mutex_);
  if (error_ != nullptr) std::rethrow_exception(error_);
  return !abandoned_;
}

void SyncRounds::regroup(const Membership& membership, bool passed) {
  membership_ = membership;
  // All replicas hold it, so all of them apply it: undoing it here would fork the model.
  if (passed && (asked_for_ || before_applied_.taken())) return;
  HookPoint point = applied_at_;
  std::uint64_t id = applied_;
  if (before_applied_.taken()) {
    restore();
    const MutexLock lock(mutex_);
    --traffic_.rounds;
    traffic_.round_seconds -= seconds_between(opened_at_, exchanged_at_);
  } else if (round_) {
    wait_for_exchange();
    method_->drop(*round_);
    point = round_->opened;
    id = round_->id;
    round_.reset();
  } else {
    return;
  }
  {
    const MutexLock lock(mutex_);
    ++traffic_.dropped;
  }
  open(point, id);
}

void SyncRounds::rejoin(const Membership& membership, store::Step next) {
  if (round_) {
    wait_for_exchange();
    method_->drop(*round_);
    round_.reset();
  }
  asked_for_ = false;
  membership_ = membership;
  // The replica that rejoined counts rounds from here.
  opened_ = 0;
  resume(next);
}

void SyncRounds::gradient_clipped(store::Step step) {
  before_applied_.discard();
  open_and_apply({step, Hook::clipped});
}

void SyncRounds::before_update(store::Step step) {
  // gradient_clipped() was not called, so the step is skipped.
  if (before_applied_.taken()) restore();
  if (!round_) return;
  if (due(step)) return apply();
  // The update changes the weights that the round encodes.
  finish_reading();
}

bool SyncRounds::updated(store::Step step, bool leaving) {
  const HookPoint point{step, Hook::update};
  const auto planned = method_->plan(point, slots_.layout(), membership_);
  if (!planned) return false;
  const bool at_once = planned->late == 0;
  if (at_once || !leaving) open(point);
  // With a tracker all replicas must hold the round first; the caller asks them, then calls
  // apply_now().
  if (at_once && tracker_ == nullptr) apply();
  return at_once && tracker_ != nullptr;
}

void SyncRounds::restore() {
  before_applied_.restore(slots_);
  ++changes_;
}

void SyncRounds::apply_now() {
  if (round_) apply();
}

void SyncRounds::before_model_read(store::Step steps) {
  if (round_ && round_->opened.step < step_before(steps)) apply();
  if (round_) finish_reading();
  if (!round_) open_and_apply({steps, Hook::model_read});
}

void SyncRounds::resume(store::Step next) {
  if (store::number(next) == 0) return;
  const HookPoint point{step_before(next), Hook::update};
  const auto planned = method_->plan(point, slots_.layout(), membership_);
  // A round that is not late was applied at its hook, before the checkpoint.
  if (planned && planned->late > 0) open(point);
}

void SyncRounds::open_and_apply(const HookPoint& point) {
  // Only a round that opened here: one that opened earlier may not be due yet.
  if (open(point)) apply();
}

bool SyncRounds::open(const HookPoint& point, std::optional<std::uint64_t> again) {
  auto plan = method_->plan(point, slots_.layout(), membership_);
  if (!plan) return false;
  if (round_) throw std::logic_error("the sync method opens a second round");
  if (plan->late > 1 && method_->traits.model_is_replicated &&
      method_->traits.model_slot == kWeights) {
    throw std::logic_error(
        "the sync method applies a round two or more updates late, but the model that members "
        "compare is the weights, which change in between");
  }
  round_.emplace();
  // A repeated round keeps its number: the members count rounds, not attempts.
  round_->id = again ? *again : opened_++;
  round_->opened = point;
  asked_for_ = false;
  round_->plan = std::move(*plan);
  round_->membership = membership_;
  round_->parts = parts_of(round_->plan, membership_);
  {
    const MutexLock lock(mutex_);
    requested_ = true;
    read_ = false;
    exchanged_ = false;
    abandoned_ = false;
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

void SyncRounds::apply() {
  {
    const MutexLock lock(mutex_);
    while (!exchanged_ && error_ == nullptr) changed_.wait(mutex_);
    if (error_ != nullptr) std::rethrow_exception(error_);
    if (abandoned_) {
      throw std::logic_error(
          "the sync method applies a round that was abandoned because the members changed");
    }
    ++traffic_.rounds;
    traffic_.round_seconds += seconds_between(opened_at_, exchanged_at_);
    traffic_.opened = opened_at_;
    traffic_.exchanged = exchanged_at_;
  }
  if (in_group(round_->plan.pattern)) {
    grouped_.group->arrive();
  } else {
    method_->apply(*round_, slots_);
    const MutexLock lock(mutex_);
    traffic_.distance = method_->distance();
  }
  ++changes_;
  round_.reset();
  asked_for_ = false;
}

void SyncRounds::check_sums() const {
  if (grouped_.group != nullptr) grouped_.group->check();
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

// ---- The engine's thread: one exchange after the other.

net::LinkError SyncRounds::leaving() {
  return {net::LinkError::Kind::aborted, "the replica left in the middle of a sync round"};
}

void SyncRounds::wait_until_ready(Range range) {
  const MutexLock lock(mutex_);
  while (!closing_ && !ready_.cover(slots_.layout(), range)) changed_.wait(mutex_);
  if (closing_) throw leaving();
}

void SyncRounds::exchange_rounds() {
  while (true) {
    bool abandoned = false;
    {
      const MutexLock lock(mutex_);
      while (!closing_ && (error_ != nullptr || (!requested_ && !abandoned_)))
        changed_.wait(mutex_);
      if (abandoned_ && !requested_) changed_.wait_until(mutex_, Clock::now() + kDrainInterval);
      if (closing_) return;
      abandoned = !requested_;
      requested_ = false;
    }
    if (abandoned)
      drain();
    else
      exchange_one();
  }
}

// Members that do not know of the new membership yet may wait for room in this replica's window.
void SyncRounds::drain() {
  try {
    links_.drain();
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
  bool abandoned = false;
  try {
    // Here and not in regroup(): only this thread uses the links while a round is in progress.
    links_.regroup(round_->membership);
    // Rounds of other hooks read slots that do not change, so they do not wait for the gradient of
    // the next step, which already arrives.
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
                              },
                              grouped_, while_waiting()};
    run_exchange(*round_, *method_, slots_, links_, hooks);
  } catch (const SyncError& thrown) {
    abandoned = thrown.kind() == SyncError::Kind::membership_changed;
    if (!abandoned) error = std::current_exception();
  } catch (const std::exception&) {
    error = std::current_exception();
  }
  {
    const MutexLock lock(mutex_);
    error_ = error;
    exchanged_ = true;
    // An abandoned round reads nothing any more, so the trainer need not wait for it.
    read_ = read_ || abandoned;
    abandoned_ = abandoned;
    exchanged_at_ = Clock::now();
  }
  changed_.notify_all();
  if (grouped_.group != nullptr && error == nullptr) watch_sums();
}

WhileWaiting SyncRounds::while_waiting() {
  return [this](std::optional<std::size_t> member) {
    {
      const MutexLock lock(mutex_);
      if (closing_) throw leaving();
    }
    return links_.check(member);
  };
}

// During training: the trainer goes on until it reads from the device.
void SyncRounds::watch_sums() {
  try {
    grouped_.group->watch(while_waiting());
  } catch (const std::exception&) {
    const MutexLock lock(mutex_);
    error_ = std::current_exception();
  }
  changed_.notify_all();
}

}  // namespace strait::sync
