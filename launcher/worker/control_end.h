#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "framework/mutex.h"
#include "framework/net/link.h"
#include "framework/sync/membership.h"
#include "launcher/control/control_message.h"
#include "stages/stage_options.h"

namespace strait::worker {

// A stage's end of the control plane. A thread of its own receives, so that a stop or an abort
// takes effect while the stage computes. An Abort, or a lost coordinator, ends the process at once:
// all state that has to survive is in checkpoints.
//
// Threads: any may call.
class ControlEnd {
 public:
  explicit ControlEnd(std::unique_ptr<net::Link> link);
  ~ControlEnd();
  ControlEnd(const ControlEnd&) = delete;
  ControlEnd& operator=(const ControlEnd&) = delete;

  void say(const control::StageMessage& message) STRAIT_EXCLUDES(send_mutex_);

  // Where every process listens, once all are ready.
  std::map<std::string, std::string> wait_for_peers() STRAIT_EXCLUDES(mutex_);

  stages::Wishes wishes() const { return {stop_requested_, save_requested_}; }

  // Called, mostly on the listening thread, when another replica rejoins: `expect` binds listeners
  // for it, `meet` connects once its endpoints are known.
  using Expect = std::function<std::map<std::string, std::string>(const control::Admit&)>;
  void on_admit(Expect expect, std::function<void(const control::Peers&)> meet)
      STRAIT_EXCLUDES(mutex_);

  // In a replica that rejoins: waits until it takes part.
  struct Turn {
    store::Step step{};  // of the checkpoint that it starts from
    sync::Rejoin arrival;
  };
  Turn wait_for_turn() STRAIT_EXCLUDES(mutex_);

  // Called when a checkpoint is dropped, on the listening thread and before the next message is
  // handled, because an abort often follows. It must not throw. `epoch` is the one in which the
  // dropped checkpoint was written; the step may have been written again since.
  using Clean = std::function<void(store::Step, std::uint32_t epoch)>;
  void on_drop(Clean clean) STRAIT_EXCLUDES(mutex_);

  // The coordinator's decision about a checkpoint.
  struct Decision {
    std::optional<std::string> missing;        // why it was not committed; none: it was
    bool again = false;                        // to be written again by the remaining replicas
    std::optional<sync::Rejoin> arrival = {};  // a replica takes part from here on
  };
  // Waits until the checkpoint of this step exists or does not, as written in this epoch.
  Decision wait_for_commit(store::Step step, std::uint32_t epoch) STRAIT_EXCLUDES(mutex_);

  // Passes changes of membership on to `tracker`, which outlives this object.
  void track_membership(sync::MembershipTracker& tracker) STRAIT_EXCLUDES(mutex_);

  // Waits until the coordinator has received every message; false at the deadline.
  bool flush(std::chrono::steady_clock::time_point deadline) { return link_->flush(deadline); }

 private:
  void listen();
  void hear(const control::CoordinatorMessage& message) STRAIT_EXCLUDES(mutex_);
  void hear(const control::Peers& peers) STRAIT_EXCLUDES(mutex_);
  void hear(const control::Admit& admit) STRAIT_EXCLUDES(mutex_);
  void note(const control::Committed& committed) STRAIT_REQUIRES(mutex_);

  const std::unique_ptr<net::Link> link_;
  Mutex send_mutex_;
  std::atomic<bool> stop_requested_ = false;
  std::atomic<std::uint32_t> save_requested_ = 0;
  std::atomic<bool> closing_ = false;

  Mutex mutex_;
  Condition changed_;
  std::optional<std::map<std::string, std::string>> peers_ STRAIT_GUARDED_BY(mutex_);
  std::map<std::pair<store::Step, std::uint32_t>, Decision> decided_ STRAIT_GUARDED_BY(mutex_);
  std::optional<Turn> turn_ STRAIT_GUARDED_BY(mutex_);
  std::optional<control::Admit> early_ STRAIT_GUARDED_BY(mutex_);  // received before on_admit()
  Expect expect_ STRAIT_GUARDED_BY(mutex_);
  std::function<void(const control::Peers&)> meet_ STRAIT_GUARDED_BY(mutex_);
  sync::MembershipTracker* tracker_ STRAIT_GUARDED_BY(mutex_) = nullptr;
  Clean on_drop_ STRAIT_GUARDED_BY(mutex_);
  std::thread listener_;
};

}  // namespace strait::worker
