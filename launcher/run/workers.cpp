#include "launcher/run/workers.h"

namespace strait::run {

std::string Worker::host() const {
  if (handle.process) return handle.process->host();
  return hello ? hello->host : std::string();
}

std::string Worker::describe() const {
  const std::string name = handle.name.describe();
  return host().empty() ? name : name + " (host " + host() + ")";
}

std::string Worker::sentence_about(const std::string& text) const {
  const std::string name = handle.name.describe();
  // Sentences of a process may begin with its own name, which must not appear twice.
  return describe() + (text.starts_with(name) ? text.substr(name.size()) : ": " + text);
}

Workers::Workers(std::vector<WorkerHandle> handles) {
  for (WorkerHandle& handle : handles) {
    Worker& worker = workers_.emplace_back();
    worker.handle = std::move(handle);
    // A handle without a link belongs to a replica that the run starts without.
    worker.evicted = worker.handle.link == nullptr;
    worker.heard = std::chrono::steady_clock::now();
  }
}

Workers::~Workers() {
  for (const Worker& worker : workers_) {
    if (!worker.handle.link) continue;
    worker.handle.link->abort(
        net::LinkError(net::LinkError::Kind::aborted, "the coordinator has ended"));
  }
  kill_all();
}

std::vector<net::ProcessName> Workers::names() const {
  std::vector<net::ProcessName> names;
  for (const Worker& worker : workers_) names.push_back(worker.handle.name);
  return names;
}

std::vector<net::ProcessName> Workers::present() const {
  std::vector<net::ProcessName> names;
  for (const Worker& worker : workers_) {
    if (!worker.evicted) names.push_back(worker.handle.name);
  }
  return names;
}

std::vector<std::uint32_t> Workers::absent_replicas() const {
  std::set<std::uint32_t> absent;
  for (const Worker& worker : workers_) {
    if (worker.evicted) absent.insert(worker.handle.name.replica);
  }
  return {absent.begin(), absent.end()};
}

const Worker& Workers::at(net::ProcessName name) const {
  const auto found =
      std::ranges::find_if(workers_, [&](const Worker& one) { return one.handle.name == name; });
  if (found == workers_.end()) throw std::logic_error("no such process: " + name.describe());
  return *found;
}

Worker& Workers::at(net::ProcessName name) {
  return const_cast<Worker&>(std::as_const(*this).at(name));
}

bool Workers::every(bool (Worker::*is)() const) const {
  return std::ranges::all_of(workers_, [is](const Worker& worker) { return (worker.*is)(); });
}

Peers Workers::peers(const std::function<Endpoints(Endpoints)>& locate) const {
  Endpoints endpoints;
  for (const Worker& worker : workers_) {
    // Endpoints of a replica that has left are stale, and their names must be free for its return.
    if (!worker.ready || worker.evicted) continue;
    for (const auto& [link, endpoint] : worker.ready->endpoints) {
      if (!endpoints.emplace(link, endpoint).second) {
        throw base::MessageError("link " + link + " was bound by two processes");
      }
    }
  }
  return {locate ? locate(std::move(endpoints)) : std::move(endpoints)};
}

std::vector<ProcessReport> Workers::reports(std::chrono::steady_clock::time_point now) const {
  std::vector<ProcessReport> reports;
  for (const Worker& worker : workers_) {
    if (worker.evicted) continue;
    reports.push_back({worker.handle.name, worker.host(), worker.hello ? worker.hello->pid : 0,
                       worker.progress, std::chrono::duration<double>(now - worker.heard).count()});
  }
  return reports;
}

void Workers::send(Worker& worker, const CoordinatorMessage& message) {
  // A link that has failed is not tried again: the inbox, which receives on it, reports the
  // failure.
  if (worker.gone() || worker.link_over) return;
  try {
    worker.handle.link->send(format(message));
  } catch (const net::LinkError&) {
    worker.link_over = true;
  }
}

void Workers::broadcast(const CoordinatorMessage& message) {
  for (Worker& worker : workers_) send(worker, message);
}

void Workers::poll_exits() {
  for (Worker& worker : workers_) {
    if (!worker.handle.process || worker.status) continue;
    worker.status = worker.handle.process->exit_status();
    if (worker.status) worker.ended = std::chrono::steady_clock::now();
  }
}

void Workers::kill(Worker& worker) {
  // A process that has already exited keeps its own status, so it does not count as killed.
  if (!worker.handle.process || worker.status) return;
  worker.killed = true;
  worker.handle.process->kill();
}

void Workers::evict(Worker& worker, const Abort& abort) {
  // Sent first, because nothing is sent to an evicted worker.
  send(worker, abort);
  kill(worker);
  worker.evicted = true;
}

void Workers::kill_all() {
  for (Worker& worker : workers_) kill(worker);
  // One deadline for all: a kernel that does not let a process die must not hold up the launcher
  // once per process.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  for (Worker& worker : workers_) {
    if (worker.handle.process && !worker.status) {
      worker.status = worker.handle.process->wait_until(deadline);
    }
  }
}

}  // namespace strait::run
