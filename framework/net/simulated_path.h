#pragma once

#include <atomic>
#include <list>
#include <string>
#include <thread>
#include <vector>

#include "framework/file_descriptor.h"
#include "framework/mutex.h"
#include "framework/net/path_conditions.h"

namespace strait::net {

// The path between the two ends of a link on this machine, made as bad as networks are: slow, long,
// lossy, or cut again and again (PathConditions). Tests make it worse: cuts in the middle of a
// message, or bytes that vanish. A TCP forwarder in user space; the ends do not know of it.
//
// Any thread may call. Uses one thread that accepts, and two per connection.
class SimulatedPath {
 public:
  // The same seed gives the same losses and cuts. LinkError (unusable): no loopback port is free.
  explicit SimulatedPath(const PathConditions& conditions = {}, std::uint64_t seed = 0);
  ~SimulatedPath();
  SimulatedPath(const SimulatedPath&) = delete;
  SimulatedPath& operator=(const SimulatedPath&) = delete;

  std::string endpoint() const;                  // where to connect
  void forward_to(const std::string& endpoint);  // until then connections are closed at once
  // For new connections, and for further bytes of existing ones.
  void set(const PathConditions& conditions) STRAIT_EXCLUDES(mutex_);

  void cut();    // all existing connections
  void reset();  // the same, as if a process died with unread bytes
  void cut_each_after(std::uint64_t bytes) { cut_after_ = bytes; }  // 0: never
  void freeze() { frozen_ = true; }   // connections stay, but nothing passes any more
  void freeze_open();                 // the same, for existing connections only
  void hold_back() { held_ = true; }  // nothing more is read from the connecting side
  std::uint64_t connections() const { return connections_; }

 private:
  using Clock = std::chrono::steady_clock;

  struct Connection {
    FileDescriptor near;
    FileDescriptor far;
    std::atomic<std::uint64_t> bytes{0};
    std::atomic<bool> frozen{false};
    std::atomic<int> open{2};  // directions
    std::vector<std::thread> pumps;
  };
  struct Current {
    PathConditions conditions;
    std::uint64_t version = 0;  // counts changes of the conditions
  };

  void accept_all();
  void serve(FileDescriptor near) STRAIT_EXCLUDES(mutex_);
  static void join(std::list<Connection>& connections);
  void join_ended() STRAIT_EXCLUDES(mutex_);
  void cut_if_due();
  void pump(Connection& connection, int from, int to, std::uint64_t seed);
  Current current() const STRAIT_EXCLUDES(mutex_);

  const std::uint64_t seed_;
  const FileDescriptor listener_;
  std::uint16_t port_ = 0;
  std::atomic<std::uint16_t> target_{0};
  std::atomic<std::uint64_t> cut_after_{0};
  std::atomic<std::uint64_t> connections_{0};
  std::atomic<bool> frozen_{false};
  std::atomic<bool> held_{false};
  std::atomic<bool> stopping_{false};
  mutable Mutex mutex_;
  Current current_ STRAIT_GUARDED_BY(mutex_);
  std::list<Connection> open_ STRAIT_GUARDED_BY(mutex_);
  // Used by the accepting thread only.
  Clock::time_point next_cut_;
  Clock::time_point cut_until_;
  std::thread acceptor_;
};

}  // namespace strait::net
