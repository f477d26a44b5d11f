#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

// Requests of the launcher about the paths of a host, and the replies of its agent, which are
// messages of agent_message.h. Endpoints are text: tcp://ADDRESS:PORT.
namespace strait::hosts {

struct ProbePeer {
  std::int64_t host = 0;
  std::string key;  // its public key
};

// Listen for probes of these hosts; ends an earlier listening. Without addresses: only that.
struct OpenPort {
  std::vector<std::string> addresses;
  std::vector<ProbePeer> peers;
  std::int64_t links = 1;  // parallel links to each address
};

struct OpenedAddress {
  std::string interface;               // that has the address; empty: none of this host
  std::vector<std::string> endpoints;  // one per parallel link, all at the same address
};

struct PortOpened {
  std::vector<OpenedAddress> addresses;
  std::vector<std::string> problems;  // one for each address where it could not listen
};

struct PathTarget {
  std::int64_t host = 0;
  std::string endpoint;
};

struct TryPaths {
  std::vector<PathTarget> targets;
  double limit_seconds = 3;
  std::int64_t pings = 3;  // of a target that answers: the first one may find cold caches
};

struct PathResult {
  std::string problem;  // empty: the host answered
  double seconds = 0;   // of the shortest round trip
};

struct PathsTried {
  std::vector<PathResult> results;  // in the order of the targets
};

// One flow has two requests: one host sends while the other receives, over one link per endpoint.
struct SendFlow {
  std::int64_t to = 0;
  std::vector<std::string> endpoints;
  double seconds = 0;
};

struct ReceiveFlow {
  std::int64_t from = 0;
  std::vector<std::string> endpoints;
};

struct FlowMeasured {  // by the host that receives
  double bytes_per_second = 0;
};

// A block of this model, forward and backward, as a stage would compute it.
struct MeasureCompute {
  std::string model_config;
  std::int64_t rows = 0;
  std::int64_t row = 0;  // tokens
  std::int64_t threads = 1;
  bool gpu = false;  // where there is one
};

struct ComputeMeasured {
  double flops_per_second = 0;  // of the forward
  double backward = 0;          // as a multiple of the forward's time
  double memory_bytes_per_second = 0;
  std::vector<std::int64_t> gpu_memory;  // of each GPU that it could use
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

using PathRequest =
    std::variant<OpenPort, TryPaths, SendFlow, ReceiveFlow, MeasureCompute, DialRelay, BindRelay>;

}  // namespace strait::hosts
