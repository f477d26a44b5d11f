#include "framework/net/net_thread.h"

#include <fmt/format.h>

#include <bit>
#include <cerrno>
#include <csignal>
#include <future>
#include <zmq_addon.hpp>

namespace strait::net {
namespace {

// Often enough for heartbeats and deadlines, which are in seconds.
constexpr std::chrono::milliseconds kRoundAtLeastEvery{50};

std::chrono::milliseconds time_until(Uplink::Time due) {
  const auto now = std::chrono::steady_clock::now();
  if (due <= now) return std::chrono::milliseconds{0};
  if (due >= now + kRoundAtLeastEvery) return kRoundAtLeastEvery;
  return std::chrono::ceil<std::chrono::milliseconds>(due - now);
}

// libzmq aborts the process where it cannot start its two threads. Starts more than these and the
// net thread, because threads that have ended count for another moment: std::system_error where a
// limit forbids that.
zmq::context_t context_if_threads_start() {
  constexpr std::size_t kThreads = 8;
  std::vector<std::jthread> threads;
  std::promise<void> end;  // its destructor lets the threads end
  const std::shared_future<void> ended = end.get_future();
  for (std::size_t i = 0; i < kThreads; ++i) threads.emplace_back([ended] { ended.wait(); });
  return {};
}

// The parts of a request, in the order of the RFC.
constexpr std::size_t kVersionPart = 0;
constexpr std::size_t kRequestPart = 1;
constexpr std::size_t kDomainPart = 2;
constexpr std::size_t kAddressPart = 3;
constexpr std::size_t kMechanismPart = 5;
constexpr std::size_t kCredentialPart = 6;
constexpr std::size_t kPublicKeyBytes = 32;

std::string z85_of(const zmq::message_t& key) {
  std::array<char, 41> text{};
  zmq_z85_encode(text.data(), static_cast<const std::uint8_t*>(key.data()), key.size());
  return text.data();
}

}  // namespace

NetThread::NetThread(const NodeOptions& node)
    : context_(context_if_threads_start()),
      gate_(context_, "run-" + node.run.hex(), node.on_event),
      thread_([this] { make_rounds(); }) {}

NetThread::~NetThread() { stop(); }

void NetThread::run(const std::function<void()>& order) {
  // The order refers to the caller's stack, so the caller waits for it.
  std::packaged_task<void()> task(order);
  std::future<void> done = task.get_future();
  {
    const MutexLock lock(mutex_);
    if (stopping_) return;
    tasks_.emplace_back([&task] { task(); });
  }
  // The task is queued before the signal, so the thread that wakes finds it.
  signal_.raise();
  done.get();
}

void NetThread::wake() { signal_.raise(); }

void NetThread::stop() {
  if (!thread_.joinable()) return;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  signal_.raise();
  thread_.join();
}

void NetThread::remove(const Carrier& carrier) {
  std::erase_if(carriers_, [&](const auto& held) { return held.get() == &carrier; });
}

void NetThread::run_tasks() {
  // Taken out under the lock and run without it: a task may hand in another one.
  std::vector<std::function<void()>> tasks;
  {
    const MutexLock lock(mutex_);
    tasks.swap(tasks_);
  }
  for (const auto& task : tasks) task();
}

void NetThread::make_rounds() {
  // Signals such as Ctrl-C are for the main thread.
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  while (true) {
    // Lowered before the work is looked at: a signal raised from here on causes another round.
    signal_.lower();
    run_tasks();
    {
      // Tasks that were accepted before stop() still run, since their callers wait.
      const MutexLock lock(mutex_);
      if (stopping_ && tasks_.empty()) break;
    }
    gate_.turn();
    const auto now = std::chrono::steady_clock::now();
    bool more = false;
    for (const auto& carrier : carriers_) more = carrier->turn(now) || more;
    wait_for_work(more);
  }
  // Carriers are closed by this thread, which owns their sockets.
  for (const auto& carrier : carriers_) carrier->close();
  carriers_.clear();
}

void NetThread::wait_for_work(bool more) {
  std::vector<zmq::pollitem_t> items;
  items.push_back({nullptr, signal_.descriptor(), ZMQ_POLLIN, 0});
  items.push_back(poll_item(gate_.requests(), false));
  for (const auto& carrier : carriers_) carrier->poll_on(items);
  const auto wait = more ? std::chrono::milliseconds{0} : time_until(uplink_.take_due());
  const int count = static_cast<int>(items.size());
  // A process that is stopped and continued may see an interrupted poll; the next round polls
  // again.
  if (zmq_poll(items.data(), count, wait.count()) < 0 && zmq_errno() != EINTR) throw zmq::error_t();
}

ZapGate::ZapGate(zmq::context_t& context, std::string domain,
                 std::function<void(const std::string&)> on_event)
    : domain_(std::move(domain)),
      on_event_(std::move(on_event)),
      requests_(context, zmq::socket_type::rep) {
  requests_.set(zmq::sockopt::linger, 0);
  requests_.bind("inproc://zeromq.zap.01");
}

void ZapGate::allow(const std::string& public_key, const ProcessName& name) {
  Allowed& allowed = allowed_[public_key];
  allowed.name = name;
  ++allowed.times;
}

void ZapGate::forget(const std::string& public_key) {
  const auto found = allowed_.find(public_key);
  if (found != allowed_.end() && --found->second.times == 0) allowed_.erase(found);
}

void ZapGate::turn() {
  for (std::vector<zmq::message_t> request;
       zmq::recv_multipart(requests_, std::back_inserter(request), zmq::recv_flags::dontwait);
       request.clear()) {
    if (request.size() <= kMechanismPart) {
      // libzmq writes these requests itself. One without its parts cannot be answered properly, but
      // a REP socket that owes an answer would never receive again.
      requests_.send(zmq::message_t(), zmq::send_flags::none);
      continue;
    }
    const bool curve = request.size() > kCredentialPart &&
                       request[kMechanismPart].to_string_view() == "CURVE" &&
                       request[kCredentialPart].size() == kPublicKeyBytes;
    const std::string key = curve ? z85_of(request[kCredentialPart]) : std::string();
    const auto found = allowed_.find(key);
    const bool enters = found != allowed_.end() && request[kDomainPart].to_string_view() == domain_;
    // Strangers must not fill the log: the 1st, 2nd, 4th, 8th ... refusal is reported.
    if (!enters && std::has_single_bit(++refused_)) {
      on_event_(fmt::format("refused: a process at {} with an unknown key ({} so far)",
                            request[kAddressPart].to_string(), refused_));
    }
    const std::string name = enters ? found->second.name.text() : "";
    std::vector<zmq::message_t> reply;
    reply.push_back(std::move(request[kVersionPart]));
    reply.push_back(std::move(request[kRequestPart]));
    reply.emplace_back(std::string(enters ? "200" : "400"));
    reply.emplace_back(std::string(enters ? "OK" : "unknown key"));
    reply.emplace_back(name);
    reply.emplace_back();
    zmq::send_multipart(requests_, reply);
  }
}

}  // namespace strait::net
