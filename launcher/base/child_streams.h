#pragma once

#include <string>
#include <utility>
#include <vector>

#include "framework/file_descriptor.h"

namespace strait::base {

// The same file under a number above 2: a child's descriptors 0 to 2 are replaced, so those that it
// copies from must have other numbers. One that is not open stays so; not open, too: errno says
// why.
FileDescriptor above_standard_streams(FileDescriptor low);

// Both ends of a stream between this process and a child, above the standard streams. Not a pipe:
// MSG_NOSIGNAL avoids SIGPIPE when the reader has died. UserError: `program` cannot be started.
std::pair<FileDescriptor, FileDescriptor> stream_pair(const std::string& program);

// Starts argv[0], searched in PATH where it has no slash, with these descriptors as its stdin,
// stdout and stderr and no others, in a session of its own and with no signal ignored or blocked.
// Returns 0 when the program runs, or an errno.
int spawn_child(int& pid, std::vector<std::string> argv, int input, int output, int errors);

}  // namespace strait::base
