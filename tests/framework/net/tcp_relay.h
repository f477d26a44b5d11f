#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <list>
#include <string>
#include <thread>
#include <vector>

#include "framework/mutex.h"

namespace strait::net {

// A TCP forwarder between the two ends of a link, which can do to them what networks do: cut
// connections in the middle of a message, again and again, or swallow bytes without a word.
class TcpRelay {
 public:
  TcpRelay();
  ~TcpRelay();
  TcpRelay(const TcpRelay&) = delete;
  TcpRelay& operator=(const TcpRelay&) = delete;

  std::string endpoint() const;                  // where to connect to
  void forward_to(const std::string& endpoint);  // before that, connections are closed at once

  void cut();    // every connection that stands now
  void reset();  // the same, as by a process that dies with something unread
  void cut_each_after(std::uint64_t bytes) { cut_after_ = bytes; }  // 0: never
  void freeze() { frozen_ = true; }  // connections stay, nothing passes any more
  void freeze_open();                // the same, for those alone that stand now
  // Of each direction; what lies in the relay's own queues is small. 0: as fast as it can.
  void set_rate(std::uint64_t bytes_per_second) { rate_ = bytes_per_second; }
  void hold_back() { held_ = true; }  // nothing more is read from the side that connected
  std::uint64_t connections() const { return connections_; }

 private:
  struct Connection {
    int near = -1;
    int far = -1;
    std::atomic<std::uint64_t> bytes{0};
    std::atomic<bool> frozen{false};
    std::vector<std::thread> pumps;
  };

  void accept_all();
  void serve(int near);
  void carry(ssize_t bytes, std::uint64_t rate) STRAIT_EXCLUDES(mutex_);  // takes its time
  void pump(Connection& connection, int from, int to);

  int listener_ = -1;
  std::uint16_t port_ = 0;
  std::atomic<std::uint16_t> target_{0};
  std::atomic<std::uint64_t> cut_after_{0};
  std::atomic<std::uint64_t> connections_{0};
  std::atomic<std::uint64_t> rate_{0};
  std::atomic<bool> frozen_{false};
  std::atomic<bool> held_{false};
  std::atomic<bool> stopping_{false};
  Mutex mutex_;
  Condition changed_;  // stopping_ was set
  std::list<Connection> open_ STRAIT_GUARDED_BY(mutex_);
  std::thread acceptor_;
};

}  // namespace strait::net
