#pragma once

#include <zmq.hpp>

#include "framework/net/endpoint.h"
#include "framework/net/node.h"

namespace strait::net {

// Binds to the first free port of the address and says which it is. LinkError::unusable names the
// ports that are taken and the processes that hold them, or why the address cannot be used.
Endpoint bind_socket(zmq::socket_t& socket, const BindAddress& address);

}  // namespace strait::net
