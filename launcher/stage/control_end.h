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
#include "framework/sync/roster.h"
#include "launcher/control/control_message.h"

namespace strait::launcher {

// A stage's end of the control plane. A thread of its own listens, so that a stop or an abort is
// heard while the stage computes. An Abort, or a coordinator that is gone for good, ends the
// process at once: nothing that is worth keeping lives outside of checkpoints.
//
// Threads: any may call.
class ControlEnd {
 public:
  explicit ControlEnd(std::unique_ptr<net::Link> link);
  ~ControlEnd();
  ControlEnd(const ControlEnd&) = delete;
  ControlEnd& operator=(const ControlEnd&) = delete;

  void say(const StageMessage& message) STRAIT_EXCLUDES(send_mutex_);

  // Where every process listens, once all are ready.
  std::map<std::string, std::string> wait_for_peers() STRAIT_EXCLUDES(mutex_);

  bool stop_requested() const { return stop_requested_; }

  // What is done when a checkpoint is given up, on the listening thread, before anything that the
  // coordinator says after it is heard: an abort often follows. It must not throw.
  void on_drop(std::function<void(store::Step)> clean) STRAIT_EXCLUDES(mutex_);

  // What became of a checkpoint.
  struct Decision {
    std::optional<std::string> missing;  // nothing where it exists; else why it does not
    bool again = false;                  // it is to be made again, by those who are left
  };
  // Waits until the checkpoint of this step exists or does not, as written in this epoch.
  Decision wait_for_commit(store::Step step, std::uint32_t epoch) STRAIT_EXCLUDES(mutex_);

  // Hears from the coordinator who takes part; outlives this.
  void keep_roster(sync::Roster& roster) STRAIT_EXCLUDES(mutex_);

  // Waits until the coordinator has everything that was said; false at the deadline.
  bool flush(std::chrono::steady_clock::time_point deadline) { return link_->flush(deadline); }

 private:
  void listen();
  void hear(const CoordinatorMessage& message) STRAIT_EXCLUDES(mutex_);

  const std::unique_ptr<net::Link> link_;
  Mutex send_mutex_;
  std::atomic<bool> stop_requested_ = false;
  std::atomic<bool> closing_ = false;

  Mutex mutex_;
  Condition changed_;
  std::optional<std::map<std::string, std::string>> peers_ STRAIT_GUARDED_BY(mutex_);
  std::map<std::pair<store::Step, std::uint32_t>, Decision> decided_ STRAIT_GUARDED_BY(mutex_);
  sync::Roster* roster_ STRAIT_GUARDED_BY(mutex_) = nullptr;
  std::function<void(store::Step)> on_drop_ STRAIT_GUARDED_BY(mutex_);
  std::thread listener_;
};

}  // namespace strait::launcher
