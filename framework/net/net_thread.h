#pragma once

#include <thread>
#include <zmq.hpp>

#include "framework/mutex.h"
#include "framework/net/carrier.h"
#include "framework/net/identity.h"
#include "framework/net/node.h"
#include "framework/net/uplink.h"
#include "framework/net/wake_signal.h"

namespace strait::net {

// Access control: the ZeroMQ authentication handler (RFC 27) of one context, with a map from
// allowed public keys to process names. Every message of an accepted peer carries that name as its
// user id. Lives on the net thread, and must exist before the first socket binds.
class ZapGate {
 public:
  ZapGate(zmq::context_t& context, std::string domain,
          std::function<void(const std::string&)> on_event);

  void allow(const std::string& public_key, const ProcessName& name);
  void forget(const std::string& public_key);  // once per allow()

  void turn();  // answers pending requests
  zmq::socket_t& requests() { return requests_; }

 private:
  struct Allowed {
    ProcessName name;
    std::uint32_t times = 0;
  };

  const std::string domain_;
  const std::function<void(const std::string&)> on_event_;
  zmq::socket_t requests_;
  std::map<std::string, Allowed> allowed_;  // by public key in Z85
  std::uint64_t refused_ = 0;
};

// The only thread that owns sockets in a process, and its rounds. Other threads hand in tasks and
// never touch a carrier.
class NetThread {
 public:
  explicit NetThread(const NodeOptions& node);  // node outlives the thread
  ~NetThread();
  NetThread(const NetThread&) = delete;
  NetThread& operator=(const NetThread&) = delete;

  // Runs the order on the net thread, waits for it, and rethrows its exception. After stop()
  // nothing runs: the sockets are closed.
  void run(const std::function<void()>& order);
  void wake();  // there is something to send; any thread, does not wait
  void stop();  // closes all carriers and joins; not from the net thread

  // For tasks.
  zmq::context_t& context() { return context_; }
  ZapGate& gate() { return gate_; }
  Uplink& uplink() { return uplink_; }  // used by the net thread only
  void add(std::shared_ptr<Carrier> carrier) { carriers_.push_back(std::move(carrier)); }
  void remove(const Carrier& carrier);

 private:
  void make_rounds();
  void wait_for_work(bool more);
  void run_tasks();

  zmq::context_t context_;
  ZapGate gate_;
  WakeSignal signal_;
  Uplink uplink_;
  std::vector<std::shared_ptr<Carrier>> carriers_;
  Mutex mutex_;
  std::vector<std::function<void()>> tasks_ STRAIT_GUARDED_BY(mutex_);
  bool stopping_ STRAIT_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace strait::net
