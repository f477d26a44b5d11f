#pragma once

#include <stdexcept>

// The kinds of failure that are the world's and not ours. A room derives its own error from the
// kind it is of; programs turn the kind into an exit code and need not know the room.
namespace strait {

// A file, setting or answer of the user's (or of a plugin) that cannot be used. what() is the
// sentence for the user: what, where, what was expected, what to do.
class InputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Bytes from a peer that no correct peer sends.
class ProtocolError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace strait
