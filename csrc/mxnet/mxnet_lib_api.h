// MXNet's extension interface, from the installed wheel.
#pragma once

// libmxnet looks up the functions that this header declares by name; all else stays hidden.
#pragma GCC visibility push(default)
#include <mxnet/lib_api.h>
#pragma GCC visibility pop
