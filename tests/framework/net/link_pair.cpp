#include "tests/framework/net/link_pair.h"

#include <gtest/gtest.h>

#include "framework/net/dealer_carrier.h"
#include "framework/net/net_thread.h"
#include "tests/memory_links.h"

namespace strait::net {

ZmqPair::~ZmqPair() {
  left.reset();
  right.reset();
  listener.reset();
}

NodeOptions node_options(const ProcessName& name, const RunId& run, const CurveKeyPair& keys) {
  NodeOptions options;
  options.name = name;
  options.run = run;
  options.keys = keys;
  return options;
}

LinkOptions link_options(const EndSetup& setup, const ProcessName& peer, const std::string& key) {
  LinkOptions options;
  options.name = "boundary 0>1";
  options.peer = peer;
  options.peer_public_key = key;
  options.terms = setup.terms;
  options.window_bytes = setup.window_bytes;
  options.fragment_bytes = setup.fragment_bytes;
  options.connect_limit = setup.connect_limit;
  options.hold = setup.hold;
  options.priority = setup.priority;
  options.shared_memory = setup.shared_memory;
  return options;
}

std::unique_ptr<LinkPair> make_memory_pair(const EndSetup& left, const EndSetup& right) {
  const RunId run = RunId::random();
  auto pair = std::make_unique<LinkPair>();
  std::tie(pair->left, pair->right) =
      memory_link({kLeft, run, left.generation, link_options(left, kRight, {})},
                  {kRight, run, right.generation, link_options(right, kLeft, {})});
  return pair;
}

std::unique_ptr<ZmqPair> make_zmq_pair(const EndSetup& left, const EndSetup& right, bool plaintext,
                                       const PathConditions& path) {
  const RunId run = RunId::random();
  const CurveKeyPair left_keys = CurveKeyPair::generate();
  const CurveKeyPair right_keys = CurveKeyPair::generate();
  NodeOptions left_options = node_options(kLeft, run, left_keys);
  NodeOptions right_options = node_options(kRight, run, right_keys);
  left_options.generation = left.generation;
  right_options.generation = right.generation;
  left_options.plaintext = right_options.plaintext = plaintext;
  auto pair = std::make_unique<ZmqPair>();
  pair->left_node = std::make_unique<Node>(left_options);
  pair->right_node = std::make_unique<Node>(right_options);
  pair->listener = pair->right_node->listen({});
  pair->right = pair->listener->expect(link_options(right, kLeft, left_keys.public_key));
  std::string endpoint = pair->listener->endpoint();
  if (path.any()) {
    pair->path = std::make_unique<SimulatedPath>(path);
    pair->path->forward_to(std::exchange(endpoint, pair->path->endpoint()));
  }
  pair->left =
      pair->left_node->connect(endpoint, link_options(left, kRight, right_keys.public_key));
  return pair;
}

std::unique_ptr<LinkPair> make_curve_pair(const EndSetup& left, const EndSetup& right) {
  return make_zmq_pair(left, right);
}

std::unique_ptr<LinkPair> make_plain_pair(const EndSetup& left, const EndSetup& right) {
  return make_zmq_pair(left, right, true);
}

std::unique_ptr<LinkPair> make_background_pair(const EndSetup& left, const EndSetup& right) {
  EndSetup lefts = left;
  EndSetup rights = right;
  lefts.priority = rights.priority = Priority::background;
  return make_zmq_pair(lefts, rights);
}

std::unique_ptr<LinkPair> make_shared_memory_pair(const EndSetup& left, const EndSetup& right) {
  EndSetup lefts = left;
  EndSetup rights = right;
  lefts.shared_memory = rights.shared_memory = true;
  return make_zmq_pair(lefts, rights);
}

namespace {

PathConditions bad_path() {
  using std::chrono::milliseconds;
  return {.bits_per_second = 200'000'000,
          .delay = milliseconds(2),
          .loss = 0.001,
          .cut_every = milliseconds(500),
          .cut_for = milliseconds(20)};
}

// The end of a link that has several flows from the start. A node opens one on a loopback.
class FlowsEnd final : public LinkEnd {
 public:
  FlowsEnd(ProtocolOptions options, const NodeOptions& node, const Endpoint& peer)
      : FlowsEnd(options, node, peer, std::make_shared<NetThread>(node)) {}
  ~FlowsEnd() override {
    thread_->run([this] {
      carrier_->detach(*this);
      thread_->remove(*carrier_);
    });
    carrier_.reset();
    thread_->stop();
  }
  FlowsEnd(const FlowsEnd&) = delete;
  FlowsEnd& operator=(const FlowsEnd&) = delete;

 private:
  FlowsEnd(const ProtocolOptions& options, NodeOptions node, const Endpoint& peer,
           std::shared_ptr<NetThread> thread)
      : LinkEnd(
            options, [thread] { thread->wake(); }, thread->uplink()),
        node_(std::move(node)),
        thread_(std::move(thread)) {
    limit_flows(4, kMaxFlows);
    thread_->run([&] {
      carrier_ =
          std::make_shared<DealerCarrier>(thread_->context(), node_, peer, options.link, *this);
      thread_->add(carrier_);
    });
  }

  const NodeOptions node_;
  const std::shared_ptr<NetThread> thread_;
  std::shared_ptr<DealerCarrier> carrier_;
};

}  // namespace

std::unique_ptr<LinkPair> make_flows_pair(const EndSetup& left, const EndSetup& right) {
  const RunId run = RunId::random();
  const CurveKeyPair left_keys = CurveKeyPair::generate();
  const CurveKeyPair right_keys = CurveKeyPair::generate();
  auto pair = std::make_unique<ZmqPair>();
  NodeOptions right_options = node_options(kRight, run, right_keys);
  right_options.generation = right.generation;
  pair->right_node = std::make_unique<Node>(right_options);
  pair->listener = pair->right_node->listen({});
  pair->right = pair->listener->expect(link_options(right, kLeft, left_keys.public_key));
  pair->path = std::make_unique<SimulatedPath>();
  pair->path->forward_to(pair->listener->endpoint());
  pair->path->cut_each_after(1'000'000);
  NodeOptions left_options = node_options(kLeft, run, left_keys);
  left_options.generation = left.generation;
  left_options.on_event = [](const std::string&) {};
  ProtocolOptions options;
  options.name = kLeft;
  options.run = run;
  options.generation = left.generation;
  options.incarnation = 1;
  options.link = link_options(left, kRight, right_keys.public_key);
  pair->left =
      std::make_unique<FlowsEnd>(options, left_options, *Endpoint::parse(pair->path->endpoint()));
  return pair;
}

std::unique_ptr<LinkPair> make_bad_path_pair(const EndSetup& left, const EndSetup& right) {
  return make_zmq_pair(left, right, false, bad_path());
}

std::unique_ptr<LinkPair> make_cut_memory_pair(const EndSetup& left, const EndSetup& right) {
  EndSetup lefts = left;
  EndSetup rights = right;
  lefts.shared_memory = rights.shared_memory = true;
  return make_zmq_pair(lefts, rights, false, bad_path());
}

std::chrono::steady_clock::time_point in_seconds(double seconds) {
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<std::chrono::steady_clock::duration>(
             std::chrono::duration<double>(seconds));
}

LinkError error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const LinkError& error) {
    return error;
  }
  ADD_FAILURE() << "the call returned and should have thrown";
  return {LinkError::Kind::lost, "nothing was thrown"};
}

Frame numbered_frame(std::uint64_t number, std::size_t size) {
  Frame frame(size);
  std::uint64_t word = number * 0x9E3779B97F4A7C15 + 1;
  for (std::byte& byte : frame) {
    word = word * 6364136223846793005 + 1442695040888963407;
    byte = static_cast<std::byte>(word >> 56);
  }
  return frame;
}

}  // namespace strait::net
