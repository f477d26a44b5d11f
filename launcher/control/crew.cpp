#include "launcher/control/crew.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace strait::control {

std::string CrewMember::host() const {
  if (hello) return hello->host;
  return station.process ? station.process->host() : std::string();
}

std::string CrewMember::describe() const {
  const std::string who = station.name.describe();
  return host().empty() ? who : who + " (host " + host() + ")";
}

Crew::Crew(std::vector<Station> stations) {
  for (Station& station : stations) {
    CrewMember& member = members_.emplace_back();
    member.station = std::move(station);
    member.parted = member.station.link == nullptr;
    member.heard = std::chrono::steady_clock::now();
  }
}

Crew::~Crew() { kill_all(); }

std::vector<net::ProcessName> Crew::names() const {
  std::vector<net::ProcessName> names;
  for (const CrewMember& member : members_) names.push_back(member.station.name);
  return names;
}

std::vector<net::ProcessName> Crew::present() const {
  std::vector<net::ProcessName> names;
  for (const CrewMember& member : members_) {
    if (!member.parted) names.push_back(member.station.name);
  }
  return names;
}

const CrewMember& Crew::member(net::ProcessName name) const {
  const auto found = std::find_if(members_.begin(), members_.end(),
                                  [&](const CrewMember& one) { return one.station.name == name; });
  if (found == members_.end()) throw std::logic_error("no such process: " + name.describe());
  return *found;
}

CrewMember& Crew::member(net::ProcessName name) {
  return const_cast<CrewMember&>(std::as_const(*this).member(name));
}

std::vector<ProcessReport> Crew::reports(std::chrono::steady_clock::time_point now) const {
  std::vector<ProcessReport> reports;
  for (const CrewMember& member : members_) {
    if (member.parted) continue;
    reports.push_back({member.station.name, member.host(), member.hello ? member.hello->pid : 0,
                       member.progress, std::chrono::duration<double>(now - member.heard).count()});
  }
  return reports;
}

void Crew::tell(CrewMember& member, const CoordinatorMessage& message) {
  if (member.gone() || member.link_over) return;
  try {
    member.station.link->send(format(message));
  } catch (const net::LinkError&) {
    member.link_over = true;
  }
}

void Crew::tell_all(const CoordinatorMessage& message) {
  for (CrewMember& member : members_) tell(member, message);
}

std::vector<CrewMember*> Crew::look_for_ends() {
  std::vector<CrewMember*> ended;
  for (CrewMember& member : members_) {
    if (!member.station.process || member.status) continue;
    member.status = member.station.process->ended();
    if (!member.status) continue;
    member.ended = std::chrono::steady_clock::now();
    ended.push_back(&member);
  }
  return ended;
}

bool Crew::all(bool (CrewMember::*are)() const) const {
  return std::all_of(members_.begin(), members_.end(),
                     [are](const CrewMember& member) { return (member.*are)(); });
}

std::map<std::string, std::string> Crew::endpoints() const {
  std::map<std::string, std::string> endpoints;
  for (const CrewMember& member : members_) {
    if (!member.ready || member.parted) continue;
    for (const auto& [link, endpoint] : member.ready->endpoints) {
      if (!endpoints.emplace(link, endpoint).second) {
        throw base::MessageError("link " + link + " was bound by two processes");
      }
    }
  }
  return endpoints;
}

void Crew::kill(CrewMember& member) {
  if (!member.station.process || member.status) return;
  member.killed = true;
  member.station.process->kill();
}

void Crew::kill_all() {
  for (CrewMember& member : members_) kill(member);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  for (CrewMember& member : members_) {
    if (member.station.process && !member.status) {
      member.status = member.station.process->wait_until(deadline);
    }
  }
}

}  // namespace strait::control
