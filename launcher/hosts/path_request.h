#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

// Requests of the launcher about the paths of a host, and the replies of its agent, which are
// messages of agent_message.h. Endpoints are text: tcp://ADDRESS:PORT.
namespace strait::hosts {

// A port of the host; empty: none was opened.
struct ListensAt {
  std::string endpoint;
};

struct ProbePeer {
  std::int64_t host = 0;
  std::string key;  // its public key
};

struct OpenedAddress {
  std::string interface;               // that has the address; empty: none of this host
  std::vector<std::string> endpoints;  // one per parallel link, all at the same address
};

struct PortOpened {
  std::vector<OpenedAddress> addresses;
  std::vector<std::string> problems;  // one for each address where it could not listen
};

// Listen for probes of these hosts; ends an earlier listening. Without addresses: only that.
struct OpenPort {
  using Reply = PortOpened;
  std::vector<std::string> addresses;
  std::vector<ProbePeer> peers;
  std::int64_t links = 1;  // parallel links to each address
};

struct PathTarget {
  std::int64_t host = 0;
  std::string endpoint;
};

struct PathResult {
  std::string problem;  // empty: the host answered
  double seconds = 0;   // of the shortest round trip
};

struct PathsTried {
  std::vector<PathResult> results;  // in the order of the targets
};

struct TryPaths {
  using Reply = PathsTried;
  std::vector<PathTarget> targets;
  double limit_seconds = 3;
  std::int64_t pings = 3;  // of a target that answers: the first one may find cold caches
};

struct FlowMeasured {
  double bytes_per_second = 0;  // by the host that receives; 0: this one has sent
};

// One flow has two requests: one host sends while the other receives, over one link per endpoint.
struct MeasureFlow {
  using Reply = FlowMeasured;
  std::int64_t peer = 0;  // the other host
  std::vector<std::string> endpoints;
  std::optional<double> send_seconds = {};  // absent: this host receives
};

struct ComputeMeasured {
  double flops_per_second = 0;  // of the forward
  double backward = 0;          // as a multiple of the forward's time
  double memory_bytes_per_second = 0;
  std::vector<std::int64_t> gpu_memory;  // of each GPU that it could use
};

// A block of this model, forward and backward, as a stage would compute it.
struct MeasureCompute {
  using Reply = ComputeMeasured;
  std::string model_config;
  std::int64_t rows = 0;
  std::int64_t row = 0;  // tokens
  std::int64_t threads = 1;
  bool gpu = false;  // where there is one
};

// One end of a relayed link. With `stage`, the endpoint of the stage that listens, that stage is
// reached over the relay; without, a port is opened here for the stage that connects.
struct JoinRelay {
  using Reply = ListensAt;
  std::string token;
  std::string relay;
  std::string stage = {};
};

using PathRequest = std::variant<OpenPort, TryPaths, MeasureFlow, MeasureCompute, JoinRelay>;

}  // namespace strait::hosts
