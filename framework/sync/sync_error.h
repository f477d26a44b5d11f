#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace strait::sync {

// A round that failed for another reason than a lost link (those throw net::LinkError). what() is a
// sentence for the user.
class SyncError : public std::runtime_error {
 public:
  enum class Kind {
    corrupt,            // bytes of another replica are malformed
    fork,               // replicas hold different bits of the model
    setting,            // the method's settings are out of range
    membership_changed  // the round is abandoned and opens again among other members
  };
  SyncError(Kind kind, const std::string& sentence) : std::runtime_error(sentence), kind_(kind) {}
  // A sentence with values, as fmt::format takes it.
  template <class... Values>
  requires(sizeof...(Values) > 0)
      SyncError(Kind kind, fmt::format_string<Values...> sentence, Values&&... values)
      : SyncError(kind, fmt::format(sentence, std::forward<Values>(values)...)) {}
  Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

}  // namespace strait::sync
