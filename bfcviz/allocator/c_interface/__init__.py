"""A heap for C callers: function pointers (`c_api`) and the struct in which they travel (`hooks`)."""
