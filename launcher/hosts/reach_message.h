#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "framework/net/link.h"

// Messages of kReachService: commands of the launcher about the paths of a host, and the answers of
// its agent. Every command but the last two has one answer, in turn. Endpoints are text:
// tcp://ADDRESS:PORT.
namespace strait::hosts {

// ---- launcher → agent

struct ProbePeer {
  std::int64_t host = 0;
  std::string key;  // its public key
};

// Listen for probes of these hosts; ends an earlier listening.
struct OpenPort {
  std::vector<std::string> addresses;
  std::vector<ProbePeer> peers;
  std::int64_t links = 1;  // parallel links to each address
};

struct PathTarget {
  std::int64_t host = 0;
  std::string endpoint;
};

struct TryPaths {
  std::vector<PathTarget> targets;
  double limit_seconds = 3;
};

struct MeasureRoundTrip {
  PathTarget target;
  std::int64_t count = 0;
};

// One flow has two commands: one host sends while the other receives, over one link per endpoint.
struct SendFlow {
  std::int64_t to = 0;
  std::vector<std::string> endpoints;
  double seconds = 0;
};

struct ReceiveFlow {
  std::int64_t from = 0;
  std::vector<std::string> endpoints;
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

struct OpenedAddress {
  std::string interface;               // that has the address; empty: none of this host
  std::vector<std::string> endpoints;  // one per parallel link, all at the same address
};

struct PortOpened {
  std::vector<OpenedAddress> addresses;
  std::vector<std::string> problems;  // one for each address where it could not listen
};

struct PathResult {
  std::string problem;  // empty: the host answered
  double seconds = 0;   // of a round trip
};

struct PathsTried {
  std::vector<PathResult> results;  // in the order of the targets
};

struct RoundTripMeasured {
  double seconds = 0;  // there and back
};

struct FlowSent {};

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
  std::string endpoint;
};

struct CommandFailed {
  std::string text;
};

using ReachCommand = std::variant<OpenPort, TryPaths, MeasureRoundTrip, SendFlow, ReceiveFlow,
                                  MeasureCompute, DialRelay, BindRelay, ClosePort>;
using ReachAnswer = std::variant<PortOpened, PathsTried, RoundTripMeasured, FlowSent, FlowMeasured,
                                 ComputeMeasured, RelayDialled, CommandFailed>;

net::Frame format(const ReachCommand& command);
net::Frame format(const ReachAnswer& answer);

// MessageError: not exactly one of these. Pure.
ReachCommand parse_reach_command(std::span<const std::byte> frame);
ReachAnswer parse_reach_answer(std::span<const std::byte> frame);

}  // namespace strait::hosts
