#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "framework/net/link.h"

// Messages of kReachService: commands of the launcher about the paths of a host, and the answers of
// its agent. Every command but the last two has one answer, in turn. Places are endpoints as text.
namespace strait::hosts {

// ---- launcher → agent

// Listen for probes of the other hosts; closes an earlier port.
struct OpenPort {
  std::string token;
  std::vector<std::string> addresses;
};

struct PathTarget {
  std::int64_t host = 0;
  std::string place;
};

struct TryPaths {
  std::string token;
  std::vector<PathTarget> targets;
  double limit_seconds = 3;
};

struct MeasureRoundTrip {
  std::string token;
  std::string place;
  std::int64_t count = 0;
};

struct MeasureFlow {
  std::string token;
  std::string place;
  bool from_there = true;  // else to there
  std::int64_t connections = 1;
  double seconds = 0;
};

// A block of this model, forward and backward, as a stage would compute it.
struct MeasureCompute {
  std::string model_config;
  std::int64_t rows = 0;
  std::int64_t row = 0;  // tokens
  std::int64_t threads = 1;
  bool gpu = false;  // where there is one
};

// A port here for the stage that connects over the relay.
struct DialRelay {
  std::string token;
  std::string relay;
};

struct BindRelay {  // the stage that listens at `stage` is reached over the relay
  std::string token;
  std::string relay;
  std::string stage;
};

struct ClosePort {};

// ---- agent → launcher

struct PortOpened {
  std::vector<std::string> places;
  std::vector<std::string> wires;     // the interface of each place; empty: not one of this host
  std::vector<std::string> troubles;  // of addresses where it could not listen
};

struct PathResult {
  std::string trouble;
  double seconds = 0;
};

struct PathsTried {
  std::vector<PathResult> results;  // in the order of the targets
};

struct RoundTripMeasured {
  double seconds = 0;  // there and back
};

struct FlowMeasured {
  double bytes_per_second = 0;
};

struct ComputeMeasured {
  double flops_per_second = 0;  // of the forward
  double backward = 0;          // as a multiple of the forward's time
  double memory_bytes_per_second = 0;
  std::vector<std::int64_t> gpu_memory;  // of each GPU that it could use
};

struct RelayDialled {
  std::string place;
};

struct CommandFailed {
  std::string text;
};

using ReachCommand = std::variant<OpenPort, TryPaths, MeasureRoundTrip, MeasureFlow, MeasureCompute,
                                  DialRelay, BindRelay, ClosePort>;
using ReachAnswer = std::variant<PortOpened, PathsTried, RoundTripMeasured, FlowMeasured,
                                 ComputeMeasured, RelayDialled, CommandFailed>;

net::Frame format(const ReachCommand& command);
net::Frame format(const ReachAnswer& answer);

// MessageError: not exactly one of these. Pure.
ReachCommand parse_reach_command(std::span<const std::byte> frame);
ReachAnswer parse_reach_answer(std::span<const std::byte> frame);

}  // namespace strait::hosts
