#pragma once

#include "framework/net/link.h"
#include "launcher/base/backend.h"
#include "launcher/run/control_message.h"
#include "launcher/run/run_observer.h"

namespace strait::run {

// A stage process that was started, and the control link to it.
struct WorkerHandle {
  net::ProcessName name;
  // Null: its replica is absent when the run begins.
  std::unique_ptr<net::Link> link;
  // Null in tests that run without processes.
  std::unique_ptr<base::Process> process;
  // Its peers authenticate it by this key.
  std::string public_key;
};

// State of one worker, as known from its messages and its process.
struct Worker {
  WorkerHandle handle;
  std::optional<Hello> hello;
  std::optional<Ready> ready;
  std::optional<Progress> progress;
  // When its latest message arrived.
  std::chrono::steady_clock::time_point heard;
  bool done = false;       // sent Ended after all its work
  bool failed = false;     // sent Ended with a failure, or its process failed
  bool link_over = false;  // nothing more arrives on its link
  bool killed = false;     // by the coordinator
  bool evicted = false;    // its replica is absent, and the run continues without it
  bool rejoining = false;  // its replica was started, but does not take part yet
  std::optional<base::ExitStatus> status;
  // When the coordinator noticed `status`.
  std::chrono::steady_clock::time_point ended;

  std::string host() const;      // as the recipe names it; empty: unknown
  std::string describe() const;  // "stage 1.0 (host b)"
  // describe(), then the text, which may start with the name of the process itself.
  std::string sentence_about(const std::string& text) const;
  bool is_ready() const { return evicted || ready.has_value(); }
  // The end of the run does not wait for it.
  bool is_optional() const { return done || evicted || rejoining; }
  // Its process has ended or, without a process, its link.
  bool gone() const { return evicted || (handle.process ? status.has_value() : link_over); }
};

// Link name → endpoint.
using Endpoints = std::map<std::string, std::string>;

// The workers of a run: sends to them, notices their end, kills them. The destructor ends
// the links, and kills and reaps those that still run. One thread.
class Workers {
 public:
  explicit Workers(std::vector<WorkerHandle> handles);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // The order never changes: an index identifies a worker's link in the inbox.
  std::vector<Worker>& all() { return workers_; }
  const std::vector<Worker>& all() const { return workers_; }
  const Worker& at(net::ProcessName name) const;
  Worker& at(net::ProcessName name);
  std::vector<net::ProcessName> names() const;
  // Names of workers that are not evicted.
  std::vector<net::ProcessName> present() const;
  // Replicas with an evicted worker, ascending.
  std::vector<std::uint32_t> absent_replicas() const;
  bool every(bool (Worker::*is)() const) const;

  // The endpoints of all links bound by present workers, for their peers to connect to. `locate`
  // translates them, if given. MessageError: two workers bound the same link.
  Peers peers(const std::function<Endpoints(Endpoints)>& locate) const;
  std::vector<ProcessReport> reports(std::chrono::steady_clock::time_point now) const;

  // A dead link is not an error here, because the inbox reports it.
  void send(Worker& worker, const CoordinatorMessage& message);
  void broadcast(const CoordinatorMessage& message);

  // Sets `status` and `ended` of workers whose process has ended.
  void poll_exits();
  void kill(Worker& worker);
  // Sends Abort, kills, and marks the worker evicted.
  void evict(Worker& worker, const Abort& abort);
  void kill_all();

 private:
  std::vector<Worker> workers_;
};

}  // namespace strait::run
