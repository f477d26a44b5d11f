#include "tests/interleavings/wire.h"

#include "tests/interleavings/simulation.h"

namespace strait::interleavings {
namespace {

[[noreturn]] void throw_lost() {
  throw net::LinkError(net::LinkError::Kind::lost, "the link was cut by the test");
}

}  // namespace

SimulatedLink::SimulatedLink(Simulation& simulation, std::shared_ptr<Wire> wire, std::size_t side)
    : simulation_(simulation), wire_(std::move(wire)), side_(side) {}

SimulatedLink::~SimulatedLink() { wire_->dead[1 - side_] = true; }

bool SimulatedLink::send_until(net::Frame& frame, std::chrono::steady_clock::time_point) {
  // Kept: the link may be replaced meanwhile.
  const std::shared_ptr<Wire> wire = wire_;
  const std::size_t side = side_;
  const Outcome outcome =
      simulation_.operate({Operation::Kind::send, wire.get(), side, false, false, Outcome::done});
  if (outcome == Outcome::death) {
    wire->dead[side] = true;
    throw_lost();
  }
  wire->arriving[1 - side].push_back(std::move(frame));
  return true;
}

net::Frame SimulatedLink::receive() { return *receive_by(false); }

std::optional<net::Frame> SimulatedLink::receive_until(
    std::chrono::steady_clock::time_point deadline) {
  if (deadline > std::chrono::steady_clock::now()) return receive_by(true);
  if (wire_->lost[side_] || wire_->arriving[side_].empty()) {
    if (wire_->dead[side_]) throw_lost();
    return std::nullopt;
  }
  net::Frame frame = std::move(wire_->arriving[side_].front());
  wire_->arriving[side_].pop_front();
  simulation_.polled(*wire_, frame);
  return frame;
}

std::optional<net::Frame> SimulatedLink::receive_by(bool timed) {
  const std::shared_ptr<Wire> wire = wire_;
  const std::size_t side = side_;
  const Outcome outcome = simulation_.operate(
      {Operation::Kind::receive, wire.get(), side, timed, false, Outcome::done});
  if (outcome == Outcome::timeout) return std::nullopt;
  if (outcome == Outcome::death) {
    wire->dead[side] = wire->lost[side] = true;
    throw_lost();
  }
  net::Frame frame = std::move(wire->arriving[side].front());
  wire->arriving[side].pop_front();
  return frame;
}

void SimulatedLink::abort(const net::LinkError&) { wire_->dead = {true, true}; }

net::LinkState SimulatedLink::state() const {
  net::LinkState state;
  state.peer = simulation_.process(wire_->process[1 - side_]).name.describe();
  return state;
}

void SimulatedLink::replace(std::shared_ptr<Wire> wire, std::size_t side) {
  wire_->dead = {true, true};
  wire_ = std::move(wire);
  side_ = side;
}

}  // namespace strait::interleavings
