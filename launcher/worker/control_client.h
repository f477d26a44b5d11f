#pragma once

#include "framework/mutex.h"
#include "framework/net/link.h"
#include "framework/sync/membership.h"
#include "launcher/run/control_message.h"
#include "stages/step_decision.h"

namespace strait::worker {

// A stage's connection to the coordinator. It receives on its own thread, so that a stop or an
// abort takes effect while the stage computes. An Abort, a lost coordinator, or an error on that
// thread ends the process at once, because all state that has to survive is in checkpoints.
//
// Any thread may call it.
class ControlClient {
 public:
  explicit ControlClient(std::unique_ptr<net::Link> link);
  ~ControlClient();
  ControlClient(const ControlClient&) = delete;
  ControlClient& operator=(const ControlClient&) = delete;

  void send(const run::StageMessage& message) STRAIT_EXCLUDES(send_mutex_);

  // Waits until all processes are ready. Returns the endpoints of all links, by name.
  std::map<std::string, std::string> wait_for_peers() STRAIT_EXCLUDES(mutex_);

  stages::Requests requests() const { return {stop_requested_, save_requested_}; }

  // Usually called on the receiving thread, when another replica rejoins: `listen_for_replica`
  // binds listeners for it, and `connect` connects once its endpoints are known.
  using ListenForReplica = std::function<std::map<std::string, std::string>(const run::Admit&)>;
  void on_admit(ListenForReplica listen_for_replica, std::function<void(const run::Peers&)> connect)
      STRAIT_EXCLUDES(mutex_);

  // For a process that answers requests. Called on the receiving thread; `end` is called at a stop.
  // Set it before Ready is sent.
  void on_inference(std::function<void(run::InferenceRequest)> request, std::function<void()> end)
      STRAIT_EXCLUDES(mutex_);

  // For a replica that rejoins: waits for the checkpoint at which it joins.
  struct RejoinPoint {
    store::Step step{};  // of the checkpoint
    sync::Rejoin arrival;
  };
  RejoinPoint wait_to_rejoin() STRAIT_EXCLUDES(mutex_);

  // Called for each decision about a checkpoint, on the receiving thread and before the next
  // message is handled, because an abort often follows a drop. It must not throw. The step may have
  // been written again since, in a later epoch.
  using DecisionHandler = std::function<void(const run::CheckpointDecided&)>;
  void on_decided(DecisionHandler handler) STRAIT_EXCLUDES(mutex_);

  // Waits until the checkpoint of this step, as written in this epoch, is committed or dropped.
  run::CheckpointDecided wait_for_commit(store::Step step, std::uint32_t epoch)
      STRAIT_EXCLUDES(mutex_);
  // The replica that joins at this checkpoint.
  static std::optional<sync::Rejoin> arrival(const run::CheckpointDecided& decided);

  // Passes changes of the membership to `tracker`, which outlives this object.
  void track_membership(sync::MembershipTracker& tracker) STRAIT_EXCLUDES(mutex_);

  // Waits until the coordinator has received every message; false at the deadline.
  bool flush(std::chrono::steady_clock::time_point deadline) { return link_->flush(deadline); }

  // The parent of this process has exited: tells the coordinator, if it is still running, and ends
  // the process.
  void exit_without_parent() STRAIT_EXCLUDES(send_mutex_);

  // For a thread that cannot continue: reports the error to the coordinator and ends the process.
  void exit_after_failure(const std::exception& error) STRAIT_EXCLUDES(send_mutex_);

 private:
  void receive_loop();
  void exit_without_coordinator(const net::LinkError& error) const;
  void handle(const run::CoordinatorMessage& message) STRAIT_EXCLUDES(mutex_);
  void handle(const run::Peers& peers) STRAIT_EXCLUDES(mutex_);
  void handle(const run::Admit& admit) STRAIT_EXCLUDES(mutex_);
  void submit(const run::InferenceRequest& request) STRAIT_EXCLUDES(mutex_);
  void record(const run::CheckpointDecided& decided) STRAIT_REQUIRES(mutex_);

  const std::unique_ptr<net::Link> link_;
  Mutex send_mutex_;
  std::atomic<bool> stop_requested_ = false;
  std::atomic<std::uint32_t> save_requested_ = 0;
  std::atomic<bool> closing_ = false;

  Mutex mutex_;
  Condition changed_;
  std::optional<std::map<std::string, std::string>> peers_ STRAIT_GUARDED_BY(mutex_);
  std::map<std::pair<store::Step, std::uint32_t>, run::CheckpointDecided> decided_
      STRAIT_GUARDED_BY(mutex_);
  std::optional<RejoinPoint> rejoin_ STRAIT_GUARDED_BY(mutex_);
  std::optional<run::Admit> pending_admit_ STRAIT_GUARDED_BY(mutex_);  // received before on_admit()
  ListenForReplica listen_for_replica_ STRAIT_GUARDED_BY(mutex_);
  std::function<void(const run::Peers&)> connect_ STRAIT_GUARDED_BY(mutex_);
  sync::MembershipTracker* tracker_ STRAIT_GUARDED_BY(mutex_) = nullptr;
  DecisionHandler decision_handler_ STRAIT_GUARDED_BY(mutex_);
  std::function<void(run::InferenceRequest)> request_ STRAIT_GUARDED_BY(mutex_);
  std::function<void()> end_ STRAIT_GUARDED_BY(mutex_);
  std::thread receiver_;
};

}  // namespace strait::worker
