#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>
#include <zmq.hpp>

#include "framework/mutex.h"
#include "framework/net/carrier.h"
#include "framework/net/node.h"
#include "framework/net/uplink.h"
#include "framework/net/wake_signal.h"
#include "framework/net/zap_gate.h"

namespace strait::net {

// The one thread that owns every socket of a process, and the rounds it makes. Others hand in
// commands; no other thread touches a carrier.
class NetThread {
 public:
  explicit NetThread(const NodeOptions& node);  // node outlives the thread
  ~NetThread();
  NetThread(const NetThread&) = delete;
  NetThread& operator=(const NetThread&) = delete;

  // Runs the order on the net thread, waits for it and throws what it threw. After stop() nothing
  // is run: the sockets are gone.
  void run(const std::function<void()>& order);
  void wake();  // something is to be sent; any thread, does not wait
  void stop();  // closes every carrier and joins; not from the net thread

  // For tasks.
  zmq::context_t& context() { return context_; }
  ZapGate& gate() { return gate_; }
  Uplink& uplink() { return uplink_; }  // its state is the net thread's alone
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
