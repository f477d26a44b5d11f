#pragma once

#include <poll.h>

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "launcher/reach/splice.h"

namespace strait::reach {

// The splices of one thread, and the bytes that each name's have moved.
class SpliceSet {
 public:
  void add(const std::string& name, Splice splice) {
    open_.push_back({name, std::move(splice), 0});
  }
  void drop(const std::string& name);

  void append_to(std::vector<pollfd>& polls) const;

  // What append_to() put there, as poll(2) left it. Ended splices go.
  void move(std::span<const pollfd> polls);

  const std::map<std::string, std::uint64_t>& bytes() const { return bytes_; }
  std::size_t size() const { return open_.size(); }

 private:
  struct Named {
    std::string name;
    Splice splice;
    std::uint64_t counted = 0;
  };

  std::vector<Named> open_;
  std::map<std::string, std::uint64_t> bytes_;
};

}  // namespace strait::reach
