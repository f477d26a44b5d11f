#pragma once

#include "framework/net/link.h"
#include "framework/net/link_options.h"
#include "framework/net/node.h"
#include "framework/net/simulated_path.h"

namespace strait::net {

// What a test may want to be different at one end.
struct EndSetup {
  std::uint32_t generation = 1;
  Terms terms = {{"plan", "1f"}, {"codec", "raw"}};
  std::uint64_t window_bytes = std::uint64_t{1} << 20;
  std::uint64_t fragment_bytes = std::uint64_t{64} << 10;
  std::chrono::milliseconds connect_limit{20'000};
  std::chrono::milliseconds hold{20'000};
  Priority priority = Priority::foreground;
  bool shared_memory = false;
};

// The two ends of one link, stage 0.0 on the left and stage 1.0 on the right, and what carries
// them.
struct LinkPair {
  virtual ~LinkPair() = default;
  std::unique_ptr<Link> left;
  std::unique_ptr<Link> right;
};

struct ZmqPair : LinkPair {
  ~ZmqPair() override;
  std::unique_ptr<SimulatedPath> path;  // null: there is none between them
  std::unique_ptr<Node> left_node;
  std::unique_ptr<Node> right_node;
  std::unique_ptr<Listener> listener;  // of the right node
};

std::unique_ptr<LinkPair> make_memory_pair(const EndSetup& left, const EndSetup& right);
std::unique_ptr<ZmqPair> make_zmq_pair(const EndSetup& left, const EndSetup& right,
                                       bool plaintext = false, const PathConditions& path = {});
std::unique_ptr<LinkPair> make_curve_pair(const EndSetup& left, const EndSetup& right);
std::unique_ptr<LinkPair> make_plain_pair(const EndSetup& left, const EndSetup& right);
std::unique_ptr<LinkPair> make_background_pair(const EndSetup& left, const EndSetup& right);
std::unique_ptr<LinkPair> make_shared_memory_pair(const EndSetup& left, const EndSetup& right);
// The same, over a connection that is slow and cut twice a second.
std::unique_ptr<LinkPair> make_cut_memory_pair(const EndSetup& left, const EndSetup& right);
// Over four flows, each of which is cut after a megabyte.
std::unique_ptr<LinkPair> make_flows_pair(const EndSetup& left, const EndSetup& right);
// Over a path that is slow, far, lossy and cut twice a second.
std::unique_ptr<LinkPair> make_bad_path_pair(const EndSetup& left, const EndSetup& right);

inline constexpr ProcessName kLeft{0, 0};
inline constexpr ProcessName kRight{1, 0};

NodeOptions node_options(const ProcessName& name, const RunId& run, const CurveKeyPair& keys);
LinkOptions link_options(const EndSetup& setup, const ProcessName& peer, const std::string& key);

std::chrono::steady_clock::time_point in_seconds(double seconds);

// The error that the call ends with; a call that ends without one fails the test.
LinkError error_of(const std::function<void()>& call);

// A frame whose every byte depends on its number, so that a mix-up shows.
Frame numbered_frame(std::uint64_t number, std::size_t size);

}  // namespace strait::net
