#pragma once

#include <array>
#include <deque>
#include <memory>

#include "framework/net/link.h"

namespace strait::interleavings {

class Simulation;

// Between two processes: what each has sent and the other has not received.
struct Wire {
  enum class Use { sync, consensus, pipeline };
  Use use = Use::sync;
  int number = 0;
  std::array<int, 2> process{};
  std::array<std::deque<net::Frame>, 2> arriving;  // by the side that receives
  std::array<bool, 2> dead{};                      // the link of this side: what arrives is over
  std::array<bool, 2> lost{};                      // likewise, and what was in flight is gone
};

// How an operation of a link ends.
enum class Outcome : std::uint8_t {
  done,
  death,    // the link is found dead
  timeout,  // its deadline has passed
};

// What a thread of a process is about to do with a link.
struct Operation {
  enum class Kind { send, receive };
  Kind kind = Kind::send;
  Wire* wire = nullptr;
  std::size_t side = 0;
  bool timed = false;
  bool woken = false;  // the coordinator has sent something since it waits
  Outcome outcome = Outcome::done;
};

class SimulatedLink final : public net::Link {
 public:
  SimulatedLink(Simulation& simulation, std::shared_ptr<Wire> wire, std::size_t side);
  ~SimulatedLink() override;

  bool send_until(net::Frame& frame, std::chrono::steady_clock::time_point deadline) override;
  net::Frame receive() override;
  std::optional<net::Frame> receive_until(std::chrono::steady_clock::time_point deadline) override;
  bool flush(std::chrono::steady_clock::time_point) override { return true; }
  void abort(const net::LinkError& cause) override;
  net::LinkState state() const override;

  // To a replica that has come back: a wire of its own.
  void replace(std::shared_ptr<Wire> wire, std::size_t side);

 private:
  std::optional<net::Frame> receive_by(bool timed);

  Simulation& simulation_;
  std::shared_ptr<Wire> wire_;
  std::size_t side_;
};

}  // namespace strait::interleavings
