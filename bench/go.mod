module plantstore/bench

go 1.26
